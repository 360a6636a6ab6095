//! Tokenizers: text to token ids and back.
//!
//! Every tokenizer wraps one of the `tokenizers` library and is saved as its `tokenizer.json`, so
//! that a tokenizer trained here opens elsewhere. Common kinds also have our own encoder, which
//! gives the same ids, is faster, and reports the position of an unknown character.
//!
//! In training text, a `<|endoftext|>` that a document happens to contain is encoded as plain
//! characters, never as the special token of that name; only [`crate::prepare`] inserts that token,
//! between documents. In a prompt, names of special tokens become these tokens, unless the user
//! wants them as text ([`Tokenizer::encode_prompt`]).

mod build;
mod byte_level;
mod characters;
mod choice;
mod error;
mod library;
mod prompt;
mod reading;
mod sidecar;
mod split;

pub use characters::UnknownCharacter;
pub use choice::{MIN_BPE_VOCAB_SIZE, TokenizerChoice};
pub use error::Error;
pub use prompt::SpecialTokens;

use crate::numbers::counted;
use byte_level::{ByteEncoder, WordEncoder};
use characters::{CharEncoder, every_character};
use ember_host::{file_error::At, files::read_whole, files::write_atomic, files::write_text};
use library::{added_around, call_library, check_replacements, library_error, set_prefix_space, unknown};
use serde_json::{Map, Value, json};
use sidecar::SidecarFiles;
use std::{path::Path, path::PathBuf, sync::Arc, sync::OnceLock};
use tokenizers::{AddedToken, Model, ModelWrapper, PreTokenizerWrapper, Tokenizer as Library};

/// The largest vocabulary size allowed when most ids name no token.
const MAX_SPARSE_IDS: usize = 1 << 20;

/// The largest `tokenizer.json`: several times that of the largest vocabularies in use.
const MAX_BYTES: u64 = 256 << 20;

/// The name of the token that separates documents.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// A tokenizer; clones share its data.
#[derive(Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
    /// The entries of the `tokenizer_config.json` that are kept with it.
    config: Arc<Map<String, Value>>,
}

struct Shared {
    library: Library,
    encoder: Encoder,
    vocab_size: usize,
    end_of_text: Option<u32>,
    /// The tokens added before and after every text.
    around: [Vec<u32>; 2],
    /// The file it was read from, to be named in errors.
    file: Option<PathBuf>,
}

enum Encoder {
    Characters(CharEncoder),
    Bytes(ByteEncoder),
    Words(Box<WordEncoder>),
    /// The library's encoder. The copy that encodes special tokens' names as text is made only when
    /// needed, since vocabularies can be large.
    Library(Box<OnceLock<Library>>),
}

impl Tokenizer {
    /// Whether the folder holds files that [`Self::from_folder`] can read.
    pub fn is_in(dir: &Path) -> bool {
        let has = |name: &str| dir.join(name).is_file();
        has("tokenizer.json") || (has("vocab.json") && has("merges.txt"))
    }

    /// Reads the tokenizer of a checkpoint or data folder: `tokenizer.json`, else GPT-2's
    /// `vocab.json` and `merges.txt`.
    ///
    /// # Errors
    /// When the folder has neither, or the files are damaged or no regular files.
    pub fn from_folder(dir: &Path) -> Result<Self, Error> {
        let (json, vocabulary, merges) = (dir.join("tokenizer.json"), dir.join("vocab.json"), dir.join("merges.txt"));
        if json.is_file() {
            return Self::from_file(&json);
        }
        if !Self::is_in(dir) {
            return Err(Error::Missing(dir.to_owned()));
        }
        let sidecar = SidecarFiles::read(dir)?;
        let read = Self::from_pair(&vocabulary, &merges, &sidecar).map_err(|error| Error::Fails {
            what: format!("cannot read {} with {}; download them again", vocabulary.display(), merges.display()),
            source: error.into(),
        });
        read?.checked_against(&sidecar, &vocabulary)
    }

    /// Reads a `tokenizer.json`, or the tokenizer of the folder at `path`.
    ///
    /// The end-of-text token is `<|endoftext|>`, else the `eos_token` of a `tokenizer_config.json`
    /// beside the file; its `add_prefix_space` applies if its class is GPT-2's.
    ///
    /// # Errors
    /// When there is none, or the library cannot read it.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            return Self::from_folder(path);
        }
        let content = read_whole(path, MAX_BYTES).at("cannot read the tokenizer", path)?;
        let sidecar = SidecarFiles::read(path.parent().unwrap_or(Path::new("")))?;
        let is_gpt2 = matches!(sidecar.name("tokenizer_class"), Some("GPT2Tokenizer" | "GPT2TokenizerFast"));
        let read = call_library(|| Library::from_bytes(content)).and_then(|mut library| {
            if is_gpt2 {
                set_prefix_space(&mut library, sidecar.flag("add_prefix_space"));
            }
            Self::from_library(library, sidecar.name("eos_token").map(str::to_owned), Some(path))
        });
        let read = read.map_err(|error| Error::Fails {
            what: format!("{} is not a tokenizer.json that the tokenizers library reads; give another", path.display()),
            source: error.into(),
        });
        read?.checked_against(&sidecar, path)
    }

    /// Returns `self`, or an error if the files beside it would change the tokenizer in
    /// transformers.
    fn checked_against(self, sidecar: &SidecarFiles, file: &Path) -> Result<Self, Error> {
        let is_llama = matches!(sidecar.name("tokenizer_class"), Some("LlamaTokenizer" | "LlamaTokenizerFast"));
        let no_space = is_llama && sidecar.flag("add_prefix_space") == Some(false);
        let is_lacking =
            |token: &AddedToken| self.shared.library.token_to_id(&token.content).is_none() && !sidecar.is_pad(token);
        let what = match sidecar.added().into_values().find(is_lacking) {
            Some(token) => {
                format!("lacks the token {:?}, which a file beside it adds", token.content)
            }
            None if no_space && self.adds_prefix_space() => {
                "puts a space before every text, but tokenizer_config.json has add_prefix_space = false".to_owned()
            }
            None => {
                let entries = sidecar.kept_entries(|name| self.shared.library.token_to_id(name).is_some());
                return Ok(Self { config: Arc::new(entries), ..self });
            }
        };
        Err(Error::Unusable(format!("{} {what}; save the tokenizer again with transformers", file.display())))
    }

    /// Whether it adds a space before a text's first word, as SentencePiece does.
    fn adds_prefix_space(&self) -> bool {
        let library = &self.shared.library;
        let encoded = call_library(|| library.encode_fast("a", false));
        let first = encoded.ok().and_then(|encoded| library.id_to_token(*encoded.get_ids().first()?));
        first.is_some_and(|token| token.starts_with('▁'))
    }

    /// Wraps a tokenizer read from `file`; the end-of-text token is `<|endoftext|>`, else
    /// `named_end`.
    fn from_library(mut library: Library, named_end: Option<String>, file: Option<&Path>) -> Result<Self, Error> {
        // Documents are encoded whole, whatever the file says.
        library.with_truncation(None).map_err(library_error)?.with_padding(None);
        let vocabulary = library.get_vocab(true);
        let Some(largest) = vocabulary.values().max().map(|&id| id as usize) else {
            return Err(Error::Unusable("the tokenizer has no tokens".to_owned()));
        };
        let count = vocabulary.len();
        if largest >= MAX_SPARSE_IDS.max(2 * count) {
            let tokens = counted(count, "token");
            return Err(Error::Unusable(format!(
                "its token ids go up to {largest}, but it has only {tokens}: a model needs an embedding row for every id up to \
                 the largest; number them from 0"
            )));
        }
        check_replacements(&library)?;
        let end_of_text =
            library.token_to_id(END_OF_TEXT).or_else(|| named_end.and_then(|name| library.token_to_id(&name)));
        let (encoder, around) = (Encoder::choose(&library), added_around(&library)?);
        if let Some(id) = around.iter().flatten().find(|id| **id as usize > largest) {
            return Err(Error::Unusable(format!(
                "it adds the token id {id} to every text, but its vocabulary goes up to {largest}: correct its post_processor"
            )));
        }
        let (vocab_size, file) = (largest + 1, file.map(Path::to_owned));
        let shared = Shared { library, encoder, vocab_size, end_of_text, around, file };
        Ok(Self { shared: Arc::new(shared), config: Arc::default() })
    }

    /// The ids of a plain text; a `<|endoftext|>` in it is ordinary text, and no special token is
    /// added.
    ///
    /// # Errors
    /// When a character tokenizer lacks a character ([`UnknownCharacter`]), or the library fails on
    /// a tokenizer from a file.
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
                self.encode_with_library(plain, text, ids)?;
            }
        }
        Ok(())
    }

    /// The text of `ids`, special tokens as their names; bytes that are not valid UTF-8 become
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
        call_library(|| self.shared.library.decode(ids, false)).map_err(|error| self.fails(error))
    }

    /// Appends the library's ids of `text`.
    fn encode_with_library(&self, library: &Library, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        let encoded = call_library(|| library.encode_fast(text, false)).map_err(|error| self.fails(error))?;
        ids.extend_from_slice(encoded.get_ids());
        Ok(())
    }

    /// Wraps an error of the library, which names no file.
    fn fails(&self, error: Error) -> Error {
        let what = match &self.shared.file {
            Some(file) => format!("the tokenizer {} fails on this text; give another", file.display()),
            None => "the tokenizer fails on this text".to_owned(),
        };
        Error::Fails { what, source: error.into() }
    }

    /// The bytes of token `id` within a text, possibly part of a character.
    ///
    /// `None` for an id that the tokenizer does not have, or a kind of tokenizer in which a single
    /// token has no fixed text.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        reading::bytes_of(&self.shared.library, id)
    }

    /// Whether concatenating the tokens' bytes gives the encoded text back, except for changes by a
    /// normalizer. Other kinds put spaces between words even where the text had none.
    pub fn is_exact(&self) -> bool {
        reading::is_exact(&self.shared.library)
    }

    /// Whether [`Self::token_bytes`] knows more than special tokens: not every kind of decoder can
    /// decode single tokens.
    pub fn knows_token_bytes(&self) -> bool {
        let added = self.shared.library.get_added_vocabulary().get_added_tokens_decoder();
        let is_special = |id| added.get(&id).is_some_and(|token| token.special);
        (0..self.vocab_size() as u32).any(|id| !is_special(id) && self.token_bytes(id).is_some())
    }

    /// The first id that means different tokens in the two tokenizers, possibly one that only one
    /// of them has; `None` if they agree.
    pub fn first_difference(&self, other: &Self) -> Option<u32> {
        let (ours, theirs) = (self.vocab_size(), other.vocab_size());
        let in_both = ours.min(theirs) as u32;
        let differs = |id: &u32| self.token_bytes(*id) != other.token_bytes(*id);
        (0..in_both).find(differs).or((ours != theirs).then_some(in_both))
    }

    /// Number of token ids: the largest id plus one.
    pub fn vocab_size(&self) -> usize {
        self.shared.vocab_size
    }

    /// The id of the token that separates documents.
    pub fn end_of_text(&self) -> Option<u32> {
        self.shared.end_of_text
    }

    /// The content of `tokenizer.json`.
    ///
    /// # Errors
    /// When the library fails.
    pub fn to_json(&self) -> Result<String, Error> {
        self.shared.library.to_string(false).map_err(library_error)
    }

    /// The same as a JSON value.
    ///
    /// # Errors
    /// When the library fails.
    pub fn to_value(&self) -> Result<Value, Error> {
        serde_json::to_value(&self.shared.library).map_err(|error| Error::Unusable(error.to_string()))
    }

    /// The tokens that end a text: the end-of-text token and, if it differs, the configured
    /// `eos_token`.
    pub fn end_tokens(&self) -> Vec<u32> {
        let mut ends: Vec<u32> = self.end_of_text().into_iter().chain(self.named("eos_token")).collect();
        ends.dedup();
        ends
    }

    /// The id of the token under a key of `tokenizer_config.json`, such as `pad_token`.
    pub fn named(&self, key: &str) -> Option<u32> {
        self.shared.library.token_to_id(self.config.get(key)?.as_str()?)
    }

    /// The unknown token, if there is one; character tokenizers have none and return an error
    /// instead.
    pub(crate) fn unknown(&self) -> Option<u32> {
        unknown(&self.shared.library)
    }

    /// Writes `tokenizer.json` and `tokenizer_config.json` such that transformers' AutoTokenizer
    /// opens them, including the special tokens' names and the chat template that came with the
    /// tokenizer.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), Error> {
        write_text(&dir.join("tokenizer.json"), &self.to_json()?)?;
        let mut config = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false });
        if let Some(end) = self.end_of_text().and_then(|id| self.shared.library.id_to_token(id)) {
            let unnamed =
                if self.config.is_empty() { &["bos_token", "eos_token", "unk_token"][..] } else { &["eos_token"] };
            unnamed.iter().for_each(|key| config[key] = end.clone().into());
        }
        for (key, value) in self.config.iter() {
            config[key] = value.clone();
        }
        write_atomic(&dir.join("tokenizer_config.json"), |out| Ok(serde_json::to_writer_pretty(out, &config)?))?;
        Ok(())
    }

    /// Whether each character is encoded independently of its neighbours.
    pub(crate) fn is_context_free(&self) -> bool {
        matches!(self.shared.encoder, Encoder::Characters(_) | Encoder::Bytes(_))
    }

    /// The last position at which `text`, the beginning of a longer text, can be cut so that its
    /// parts have the tokens of the whole. For foreign kinds of tokenizers it is the last line end,
    /// where tokens may differ.
    pub(crate) fn safe_cut(&self, text: &str) -> Option<usize> {
        match self.shared.encoder {
            Encoder::Characters(_) | Encoder::Bytes(_) => Some(text.len()),
            Encoder::Words(_) => split::safe_cut(text),
            Encoder::Library(_) => text.rfind('\n').map(|at| at + 1),
        }
    }
}

impl Encoder {
    /// Our own encoder if it gives the same ids as the library's.
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
                // Our encoder reports an unknown character as an error; with an unknown token the
                // library would not.
                let has_no_unknown_token = model.token_to_id(&model.unk_token).is_none();
                if rule.pattern != every_character() || !has_no_unknown_token {
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
