//! Builds tokenizers: characters, bytes, and byte pair encoding trained on a text or read from
//! GPT-2's files.

use super::characters::every_character;
use super::library::{call_library, library_error, set_prefix_space};
use super::prompt::prepending_processor;
use super::sidecar::SidecarFiles;
use super::{END_OF_TEXT, Error, Tokenizer, byte_level::character, split};
use ahash::AHashMap;
use compact_str::CompactString;
use std::{collections::BTreeSet, path::Path};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::split::Split;
use tokenizers::{AddedToken, Model, SplitDelimiterBehavior, Tokenizer as Library};
use tokenizers::{decoders::fuse::Fuse, models::wordlevel::WordLevel, pre_tokenizers::byte_level::ByteLevel};

impl Tokenizer {
    /// One token per character of `alphabet`, ids in code point order; `<|endoftext|>`, if
    /// requested, comes last.
    ///
    /// In the saved file each character is a word of its own, so that other readers reject unknown
    /// characters as we do.
    ///
    /// # Errors
    /// When the alphabet is empty, or the library fails.
    pub fn chars(alphabet: &BTreeSet<char>, end_of_text: bool) -> Result<Self, Error> {
        if alphabet.is_empty() {
            let what = "a character tokenizer needs a text with at least one character; give more text";
            return Err(Error::Unusable(what.to_owned()));
        }
        let vocabulary = alphabet.iter().zip(0..).map(|(character, id)| (character.to_string(), id)).collect();
        let model = WordLevel::builder().vocab(vocabulary).build().map_err(library_error)?;
        let mut library = Library::new(model);
        let split = Split::new(every_character(), SplitDelimiterBehavior::Isolated, false).map_err(library_error)?;
        library.with_pre_tokenizer(Some(split)).with_decoder(Some(Fuse::new()));
        Self::from_library(with_end_of_text(library, end_of_text)?, None, None)
    }

    /// One token per byte, its id the byte's value; `<|endoftext|>` is 256.
    ///
    /// # Errors
    /// When the library fails.
    pub fn bytes() -> Result<Self, Error> {
        let vocabulary: AHashMap<String, u32> =
            (0..=255).map(|byte| (character(byte).to_string(), byte.into())).collect();
        let model = BPE::builder().vocab_and_merges(vocabulary, Vec::new()).build().map_err(library_error)?;
        Self::from_library(with_end_of_text(byte_level(model, false), true)?, None, None)
    }

    /// Trains byte-level byte pair encoding (Sennrich et al. 2016, "Neural Machine Translation of
    /// Rare Words with Subword Units"; over bytes as in GPT-2) on `texts`, at most 1 GiB in total.
    ///
    /// `vocab_size` includes the 256 bytes and `<|endoftext|>`, which gets the last id. The
    /// vocabulary is smaller if the texts have no more pairs to merge. Words of more than 128 bytes
    /// are ignored, and of more than 300,000 distinct words only the more frequent are used, so
    /// that memory stays bounded.
    ///
    /// # Errors
    /// When the library fails.
    pub fn train_bpe<T: AsRef<str>>(vocab_size: usize, texts: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let mut counts: AHashMap<CompactString, u64> = AHashMap::new();
        for text in texts {
            for word in split::words(text.as_ref()).filter(|word| word.len() <= LONGEST_WORD) {
                match counts.get_mut(word) {
                    Some(count) => *count += 1,
                    None => _ = counts.insert(word.into(), 1),
                }
            }
            drop_rare_words(&mut counts);
        }
        let written = counts.into_iter().map(|(word, count)| (word.bytes().map(character).collect(), count)).collect();
        let trainer = BpeTrainer::builder()
            .vocab_size(vocab_size.saturating_sub(1))
            .show_progress(false)
            .initial_alphabet((0..=255).map(character).collect())
            .build();
        let mut model = BPE::default();
        trainer
            .do_train(&written, &mut model)
            .map_err(|error| Error::Unusable(format!("cannot train byte pair encoding: {error}")))?;
        Self::from_library(with_end_of_text(byte_level(model, true), true)?, None, None)
    }

    /// Reads GPT-2's two files as transformers' GPT2Tokenizer does, with the configuration beside
    /// them.
    pub(super) fn from_pair(vocabulary: &Path, merges: &Path, sidecar: &SidecarFiles) -> Result<Self, Error> {
        let model = call_library(|| {
            let (words, pairs) = BPE::read_file(&vocabulary.to_string_lossy(), &merges.to_string_lossy())?;
            BPE::builder().vocab_and_merges(words, pairs).build()
        })?;
        let has_end = model.token_to_id(END_OF_TEXT).is_some();
        let mut library = with_end_of_text(byte_level(model, true), has_end)?;
        add_tokens(&mut library, sidecar)?;
        set_prefix_space(&mut library, sidecar.flag("add_prefix_space"));
        if sidecar.flag("add_bos_token") == Some(true)
            && let Some(name) = sidecar.name_or("bos_token", END_OF_TEXT)
        {
            let missing =
                || format!("tokenizer_config.json puts {name:?} before every text, but vocab.json has no such token");
            let id = library.token_to_id(name).ok_or_else(|| Error::Unusable(missing()))?;
            library.with_post_processor(Some(prepending_processor(name, id)?));
        }
        Self::from_library(library, sidecar.name("eos_token").map(str::to_owned), Some(vocabulary))
    }
}

/// Adds the tokens of `sidecar` whose ids agree with the vocabulary or follow it. The padding token
/// is skipped unless a token with a higher id follows it.
fn add_tokens(library: &mut Library, sidecar: &SidecarFiles) -> Result<(), Error> {
    let mut added = sidecar.added();
    while added.last_key_value().is_some_and(|(_, token)| sidecar.is_pad(token)) {
        added.pop_last();
    }
    for (id, token) in added {
        let is_known = library.get_added_vocabulary().get_added_tokens_decoder().contains_key(&id);
        let next = library.get_vocab_size(true) as u32;
        if !is_known && library.token_to_id(&token.content).unwrap_or(next) == id {
            library.add_tokens([token]).map_err(library_error)?;
        }
    }
    Ok(())
}

const LONGEST_WORD: usize = 128;
const MAX_WORDS: usize = 300_000;

/// If there are more than [`MAX_WORDS`] words, keeps half that many, the most frequent ones.
fn drop_rare_words(counts: &mut AHashMap<CompactString, u64>) {
    if counts.len() <= MAX_WORDS {
        return;
    }
    let mut ranked: Vec<(u64, CompactString)> = counts.drain().map(|(word, count)| (count, word)).collect();
    // Ties are broken by the words themselves: the same texts must always give the same tokenizer.
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked.truncate(MAX_WORDS / 2);
    counts.extend(ranked.into_iter().map(|(count, word)| (word, count)));
}

fn byte_level(model: BPE, words: bool) -> Library {
    let mut library = Library::new(model);
    library.with_pre_tokenizer(Some(ByteLevel::new(false, true, words))).with_decoder(Some(ByteLevel::default()));
    library
}

/// The library's tokenizer, with `<|endoftext|>` as a special token if wanted.
fn with_end_of_text(mut library: Library, wanted: bool) -> Result<Library, Error> {
    if wanted {
        library.add_special_tokens([AddedToken::from(END_OF_TEXT, true)]).map_err(library_error)?;
    }
    Ok(library)
}
