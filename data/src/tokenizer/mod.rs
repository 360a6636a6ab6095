//! From text to token ids and back.
//!
//! Every tokenizer is one of the `tokenizers` library and is saved as its `tokenizer.json`, so that
//! what is trained here opens elsewhere. Kinds that are common here have an encoder of their own
//! beside the library's, with the same ids, for speed and for errors that say where a character
//! stands.
//!
//! Text to learn from is text: a `<|endoftext|>` that a document happens to contain is encoded as
//! the characters it is made of and never as the special token of that name, which only
//! [`crate::prepare`] puts between documents. In a prompt the names of special tokens are these
//! tokens, unless the user wants them as text ([`Tokenizer::encode_prompt`]).

mod beside;
mod build;
mod byte_level;
mod characters;
mod choice;
mod error;
mod library;
mod prompt;
mod reading;
mod split;

pub use characters::UnknownCharacter;
pub use choice::{MIN_BPE_VOCAB_SIZE, TokenizerChoice};
pub use error::Error;
pub use prompt::SpecialTokens;

use beside::Beside;
use byte_level::{ByteEncoder, WordEncoder};
use characters::{CharEncoder, every_character};
use ember_host::{file_error::At, files::read_whole, files::write_atomic, files::write_text};
use library::{check_replacements, library_error, of_library, put_around, put_space_first, unknown};
use serde_json::{Map, Value, json};
use std::{path::Path, path::PathBuf, sync::Arc, sync::OnceLock};
use tokenizers::{AddedToken, Model, ModelWrapper, PreTokenizerWrapper, Tokenizer as Library};

/// Ids that a vocabulary may have where most of them name no token.
const MOST_SPARSE_IDS: usize = 1 << 20;

/// The longest `tokenizer.json`: several times that of the largest vocabularies in use.
const MOST_BYTES: u64 = 256 << 20;

/// The name of the token that stands before and after every document.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// A tokenizer; clones share it.
#[derive(Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
    /// What stood beside it and goes along: keys of a `tokenizer_config.json`.
    beside: Arc<Map<String, Value>>,
}

struct Shared {
    library: Library,
    encoder: Encoder,
    vocab_size: usize,
    end_of_text: Option<u32>,
    /// The tokens that stand before every text and behind it.
    around: [Vec<u32>; 2],
    /// The file that it was read from, to name where it fails.
    file: Option<PathBuf>,
}

enum Encoder {
    Characters(CharEncoder),
    Bytes(ByteEncoder),
    Words(Box<WordEncoder>),
    /// The library, made when first needed to take special tokens' names as text: a copy, and
    /// vocabularies can be large.
    Library(Box<OnceLock<Library>>),
}

impl Tokenizer {
    /// Whether the folder holds what [`Self::from_folder`] reads.
    pub fn is_in(dir: &Path) -> bool {
        let has = |name: &str| dir.join(name).is_file();
        has("tokenizer.json") || (has("vocab.json") && has("merges.txt"))
    }

    /// Reads the tokenizer of a checkpoint or data folder: `tokenizer.json`, else GPT-2's
    /// `vocab.json` and `merges.txt`.
    ///
    /// # Errors
    /// When the folder has neither, or what it has is damaged.
    pub fn from_folder(dir: &Path) -> Result<Self, Error> {
        let (json, vocabulary, merges) = (dir.join("tokenizer.json"), dir.join("vocab.json"), dir.join("merges.txt"));
        if json.is_file() {
            return Self::from_file(&json);
        }
        if !Self::is_in(dir) {
            return Err(Error::Missing(dir.to_owned()));
        }
        let beside = Beside::read(dir);
        let read = Self::from_pair(&vocabulary, &merges, &beside).map_err(|error| Error::Fails {
            what: format!("cannot read {} with {}; fetch them again", vocabulary.display(), merges.display()),
            source: error.into(),
        });
        read?.agreeing_with(&beside, &vocabulary)
    }

    /// Reads a `tokenizer.json`, or the tokenizer of a folder where `path` is one.
    ///
    /// The end-of-text token is `<|endoftext|>`, else what a `tokenizer_config.json` beside the
    /// file names as `eos_token`; its `add_prefix_space` counts where its class is GPT-2's.
    ///
    /// # Errors
    /// When there is none, or the library does not read it.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            return Self::from_folder(path);
        }
        let content = read_whole(path, MOST_BYTES).at("cannot read the tokenizer", path)?;
        let beside = Beside::read(path.parent().unwrap_or(Path::new("")));
        let is_gpt2 = matches!(beside.name("tokenizer_class"), Some("GPT2Tokenizer" | "GPT2TokenizerFast"));
        let read = of_library(|| Library::from_bytes(content)).and_then(|mut library| {
            if is_gpt2 {
                put_space_first(&mut library, beside.flag("add_prefix_space"));
            }
            Self::from_library(library, beside.name("eos_token").map(str::to_owned), Some(path))
        });
        let read = read.map_err(|error| Error::Fails {
            what: format!("{} is not a tokenizer.json that the tokenizers library reads; give another", path.display()),
            source: error.into(),
        });
        read?.agreeing_with(&beside, path)
    }

    /// Itself, unless transformers would make another tokenizer of it by what the keys beside it say.
    fn agreeing_with(self, beside: &Beside, file: &Path) -> Result<Self, Error> {
        let is_llama = matches!(beside.name("tokenizer_class"), Some("LlamaTokenizer" | "LlamaTokenizerFast"));
        let no_space = is_llama && beside.flag("add_prefix_space") == Some(false);
        let is_lacking =
            |token: &AddedToken| self.shared.library.token_to_id(&token.content).is_none() && !beside.pads(token);
        let what = match beside.added().into_values().find(is_lacking) {
            Some(token) => {
                format!("lacks the token {:?}, which a file beside it adds", token.content)
            }
            None if no_space && self.puts_space_first() => {
                "puts a space before every text, and the tokenizer_config.json beside it says none".to_owned()
            }
            None => {
                let lasting = beside.lasting(|name| self.shared.library.token_to_id(name).is_some());
                return Ok(Self { beside: Arc::new(lasting), ..self });
            }
        };
        Err(Error::Unusable(format!("{} {what}; save the tokenizer again with transformers", file.display())))
    }

    /// Whether a text's first word is one behind a space, as SentencePiece has it.
    fn puts_space_first(&self) -> bool {
        let library = &self.shared.library;
        let encoded = of_library(|| library.encode_fast("a", false));
        let first = encoded.ok().and_then(|encoded| library.id_to_token(*encoded.get_ids().first()?));
        first.is_some_and(|token| token.starts_with('▁'))
    }

    /// Around what was read from `file`; the end-of-text token is `<|endoftext|>`, else
    /// `named_end`.
    fn from_library(mut library: Library, named_end: Option<String>, file: Option<&Path>) -> Result<Self, Error> {
        // Documents are encoded whole, whatever the file says.
        library.with_truncation(None).map_err(library_error)?.with_padding(None);
        let vocabulary = library.get_vocab(true);
        let Some(largest) = vocabulary.values().max().map(|&id| id as usize) else {
            return Err(Error::Unusable("the tokenizer has no tokens".to_owned()));
        };
        let count = vocabulary.len();
        if largest >= MOST_SPARSE_IDS.max(2 * count) {
            return Err(Error::Unusable(format!(
                "its token ids go up to {largest}, and it has {count} in all: a model needs a row for every id up to the largest; \
                 number them from 0"
            )));
        }
        check_replacements(&library)?;
        let end_of_text =
            library.token_to_id(END_OF_TEXT).or_else(|| named_end.and_then(|name| library.token_to_id(&name)));
        let (encoder, around) = (Encoder::choose(&library), put_around(&library)?);
        if let Some(id) = around.iter().flatten().find(|id| **id as usize > largest) {
            return Err(Error::Unusable(format!(
                "it puts the token id {id} around every text, and its vocabulary goes up to {largest}: correct its post_processor"
            )));
        }
        let (vocab_size, file) = (largest + 1, file.map(Path::to_owned));
        let shared = Shared { library, encoder, vocab_size, end_of_text, around, file };
        Ok(Self { shared: Arc::new(shared), beside: Arc::default() })
    }

    /// The ids of a plain text; a `<|endoftext|>` in it is text like any other, and no special
    /// token is added.
    ///
    /// # Errors
    /// When a tokenizer of characters lacks one ([`UnknownCharacter`]), or the library fails on
    /// what a file holds.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        self.encode_onto(text, &mut ids)?;
        Ok(ids)
    }

    /// As [`Tokenizer::encode`], appending to `ids`.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_onto(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        match &self.shared.encoder {
            Encoder::Characters(encoder) => encoder.encode(text, ids)?,
            Encoder::Bytes(encoder) => encoder.encode(text, ids),
            Encoder::Words(encoder) => encoder.encode(text, ids)?,
            Encoder::Library(plain) => {
                let plain = plain.get_or_init(|| {
                    let mut plain = self.shared.library.clone();
                    plain.set_encode_special_tokens(true);
                    plain
                });
                self.encode_by(plain, text, ids)?;
            }
        }
        Ok(())
    }

    /// The text of `ids`, special tokens written by their names; bytes that are no UTF-8 become
    /// U+FFFD.
    ///
    /// # Errors
    /// When the tokenizer has no token with one of the ids.
    pub fn decode_text(&self, ids: &[u32]) -> Result<String, Error> {
        if let Some(&id) = ids.iter().find(|&&id| self.shared.library.id_to_token(id).is_none()) {
            let vocab_size = self.vocab_size();
            return Err(Error::Unusable(format!(
                "token id {id} is not in the tokenizer, which has {vocab_size} ids; give ids below that"
            )));
        }
        of_library(|| self.shared.library.decode(ids, false)).map_err(|error| self.fails(error))
    }

    /// Appends the ids that the library finds in `text`.
    fn encode_by(&self, library: &Library, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        let encoded = of_library(|| library.encode_fast(text, false)).map_err(|error| self.fails(error))?;
        ids.extend_from_slice(encoded.get_ids());
        Ok(())
    }

    /// What an error of the library means, whose own words name no file.
    fn fails(&self, error: Error) -> Error {
        let what = match &self.shared.file {
            Some(file) => format!("the tokenizer {} fails on this text; give another", file.display()),
            None => "the tokenizer fails on this text".to_owned(),
        };
        Error::Fails { what, source: error.into() }
    }

    /// The bytes that `id` stands for within a text, perhaps a part of a character.
    ///
    /// `None` for an id the tokenizer does not have, or a kind of tokenizer in which a token alone
    /// has no fixed text.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        reading::bytes_of(&self.shared.library, id)
    }

    /// Whether the tokens' bytes, put together, are the text that they were made of, but for what a
    /// normalizer changes. Other kinds put blanks between words, where there may have been none.
    pub fn is_exact(&self) -> bool {
        reading::is_exact(&self.shared.library)
    }

    /// Whether [`Self::token_bytes`] knows any but special tokens: not every kind of decoder reads
    /// tokens one by one.
    pub fn knows_token_bytes(&self) -> bool {
        let added = self.shared.library.get_added_vocabulary().get_added_tokens_decoder();
        let is_special = |id| added.get(&id).is_some_and(|token| token.special);
        (0..self.vocab_size() as u32).any(|id| !is_special(id) && self.token_bytes(id).is_some())
    }

    /// The first id that does not stand for the same token in both, which may be one that only one of
    /// them has; none where all do.
    pub fn first_difference(&self, other: &Self) -> Option<u32> {
        let (ours, theirs) = (self.vocab_size(), other.vocab_size());
        let in_both = ours.min(theirs) as u32;
        let differs = |id: &u32| self.token_bytes(*id) != other.token_bytes(*id);
        (0..in_both).find(differs).or((ours != theirs).then_some(in_both))
    }

    /// Number of token ids: the largest and one.
    pub fn vocab_size(&self) -> usize {
        self.shared.vocab_size
    }

    /// The id of the token that stands before and after every document.
    pub fn end_of_text(&self) -> Option<u32> {
        self.shared.end_of_text
    }

    /// The content of `tokenizer.json`.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn to_json(&self) -> Result<String, Error> {
        self.shared.library.to_string(false).map_err(library_error)
    }

    /// The same as a value.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn to_value(&self) -> Result<Value, Error> {
        serde_json::to_value(&self.shared.library).map_err(|error| Error::Unusable(error.to_string()))
    }

    /// The tokens that end a text: what stands between documents, and where it is another the
    /// `eos_token` that was named beside the tokenizer.
    pub fn end_tokens(&self) -> Vec<u32> {
        let mut ends: Vec<u32> = self.end_of_text().into_iter().chain(self.named("eos_token")).collect();
        ends.dedup();
        ends
    }

    /// The token that such a key of `tokenizer_config.json` named, as `pad_token`.
    pub fn named(&self, key: &str) -> Option<u32> {
        self.shared.library.token_to_id(self.beside.get(key)?.as_str()?)
    }

    /// The token that stands for all that the vocabulary lacks, where there is one; of characters it is
    /// an error instead.
    pub(crate) fn unknown(&self) -> Option<u32> {
        unknown(&self.shared.library)
    }

    /// Writes `tokenizer.json` and `tokenizer_config.json`, which transformers' AutoTokenizer opens
    /// as they are: with what stood beside the tokenizer where it was read, its special tokens' names
    /// and its chat template.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), Error> {
        write_text(&dir.join("tokenizer.json"), &self.to_json()?)?;
        let mut config = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false });
        if let Some(end) = self.end_of_text().and_then(|id| self.shared.library.id_to_token(id)) {
            let unnamed =
                if self.beside.is_empty() { &["bos_token", "eos_token", "unk_token"][..] } else { &["eos_token"] };
            unnamed.iter().for_each(|key| config[key] = end.clone().into());
        }
        for (key, value) in self.beside.iter() {
            config[key] = value.clone();
        }
        write_atomic(&dir.join("tokenizer_config.json"), |out| Ok(serde_json::to_writer_pretty(out, &config)?))?;
        Ok(())
    }

    /// Whether a character has the same ids wherever it stands.
    pub(crate) fn is_context_free(&self) -> bool {
        matches!(self.shared.encoder, Encoder::Characters(_) | Encoder::Bytes(_))
    }

    /// The last place where `text`, the beginning of something longer, can be cut so that its parts
    /// have the tokens of the whole. For a tokenizer of a foreign kind the last line end stands in
    /// for it, where the tokens may come to differ.
    pub(crate) fn safe_cut(&self, text: &str) -> Option<usize> {
        match self.shared.encoder {
            Encoder::Characters(_) | Encoder::Bytes(_) => Some(text.len()),
            Encoder::Words(_) => split::safe_cut(text),
            Encoder::Library(_) => text.rfind('\n').map(|at| at + 1),
        }
    }
}

impl Encoder {
    /// Our own encoder where the library's would give the same ids.
    fn choose(library: &Library) -> Self {
        Self::own(library).unwrap_or_else(|| Self::Library(Box::default()))
    }

    fn own(library: &Library) -> Option<Self> {
        let added = library.get_added_vocabulary();
        let is_plain = library.get_normalizer().is_none()
            && added.get_added_tokens_decoder().values().all(|token| added.is_special_token(&token.content));
        if !is_plain {
            return None;
        }
        match (library.get_model(), library.get_pre_tokenizer()?) {
            (ModelWrapper::BPE(model), PreTokenizerWrapper::ByteLevel(rule)) if !rule.add_prefix_space => {
                if rule.use_regex {
                    Some(Self::Words(Box::new(WordEncoder::new(model)?)))
                } else {
                    Some(Self::Bytes(ByteEncoder::new(model)?))
                }
            }
            (ModelWrapper::WordLevel(model), PreTokenizerWrapper::Split(rule)) => {
                // Where it has a token for what it lacks, such a character is no error, but that token.
                let knows_no_other = model.token_to_id(&model.unk_token).is_none();
                if rule.pattern != every_character() || !knows_no_other {
                    return None;
                }
                Some(Self::Characters(CharEncoder::new(model.get_vocab().into_iter())?))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod gpt2_tests;
#[cfg(test)]
mod tests;
