//! Byte-level encoding: every byte has a token, so every text can be encoded and is decoded byte
//! for byte.
//!
//! `tokenizer.json` is a text file, so GPT-2 represents each of the 256 bytes by a printable
//! character (openai/gpt-2, `src/encoder.py`, `bytes_to_unicode`): printable Latin-1 stands for
//! itself, the other 68 bytes take the code points from U+0100 on, in order.

use super::{Error, split};
use ahash::AHashMap;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};
use tokenizers::{Model, models::bpe::BPE};

static CHARACTERS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut stand_ins = (0x100..).filter_map(char::from_u32);
    std::array::from_fn(|byte| match byte as u8 {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => byte as u8 as char,
        _ => stand_ins.next().expect("there are more than 68 characters"),
    })
});

static BYTES: LazyLock<AHashMap<char, u8>> =
    LazyLock::new(|| CHARACTERS.iter().enumerate().map(|(byte, &character)| (character, byte as u8)).collect());

/// The character that represents a byte.
pub fn character(byte: u8) -> char {
    CHARACTERS[byte as usize]
}

/// The bytes that a token's characters represent; `None` if one of them represents no byte.
pub fn bytes_of(token: &str) -> Option<Vec<u8>> {
    token.chars().map(|character| BYTES.get(&character).copied()).collect()
}

/// The ids of the 256 bytes, or `None` if the vocabulary lacks one.
fn byte_ids(model: &BPE) -> Option<[u32; 256]> {
    let ids: Option<Vec<u32>> =
        (0..=255).map(|byte| model.token_to_id(character(byte).encode_utf8(&mut [0; 4]))).collect();
    ids?.try_into().ok()
}

/// Encodes byte by byte: for a vocabulary without merges.
pub struct ByteEncoder {
    ids: Box<[u32; 256]>,
}

impl ByteEncoder {
    /// `None` if the model does not fit: it has merges, or lacks a byte.
    pub fn new(model: &BPE) -> Option<Self> {
        // The model's merges cannot be read, but each of them adds a token longer than one byte.
        let single = model.get_vocab().len() == 256;
        single.then(|| byte_ids(model)).flatten().map(|ids| Self { ids: Box::new(ids) })
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        ids.extend(text.bytes().map(|byte| self.ids[byte as usize]));
    }
}

/// Encodes word by word as GPT-2 does, with a cache of words.
///
/// The ids come from the library, which is called for every word not in the cache. This saves the
/// rest of its work, most of the time of batch encoding: the regular expression, and token offsets
/// that nobody uses.
pub struct WordEncoder {
    model: BPE,
    /// One cache per thread at work, borrowed while a text is encoded.
    caches: Mutex<Vec<WordCache>>,
}

/// The ids of a bounded number of words: about 5 MB.
#[derive(Default)]
struct WordCache {
    /// The concatenated ids of all words.
    ids: Vec<u32>,
    /// The range of each word's ids. Nearly all words are short, and their lookup touches only the
    /// table.
    short: AHashMap<ShortWord, Range<u32>>,
    long: AHashMap<Box<[u8]>, Range<u32>>,
}

/// A word of up to 16 bytes as its first bytes, its last bytes (which may overlap) and its length:
/// integers obtained without copying.
type ShortWord = (u64, u64, usize);

fn short_word(word: &[u8]) -> Option<ShortWord> {
    let (first, last) = match word.len() {
        1 => (word[0].into(), 0),
        2..=3 => (u16::from_le_bytes(*word.first_chunk()?).into(), u16::from_le_bytes(*word.last_chunk()?).into()),
        4..=7 => (u32::from_le_bytes(*word.first_chunk()?).into(), u32::from_le_bytes(*word.last_chunk()?).into()),
        8..=16 => (u64::from_le_bytes(*word.first_chunk()?), u64::from_le_bytes(*word.last_chunk()?)),
        _ => return None,
    };
    Some((first, last, word.len()))
}

impl WordCache {
    const MAX_WORDS: usize = 1 << 16;
    const LONGEST_WORD: usize = 48;

    fn get(&self, word: &[u8], short: Option<ShortWord>) -> Option<&[u32]> {
        let range = match short {
            Some(short) => self.short.get(&short),
            None => self.long.get(word),
        };
        range.map(|range| &self.ids[range.start as usize..range.end as usize])
    }

    fn insert(&mut self, word: &[u8], short: Option<ShortWord>, ids: &[u32]) {
        if word.len() > Self::LONGEST_WORD || self.short.len() + self.long.len() >= Self::MAX_WORDS {
            return;
        }
        let start = self.ids.len() as u32;
        self.ids.extend_from_slice(ids);
        let range = start..self.ids.len() as u32;
        match short {
            Some(short) => self.short.insert(short, range),
            None => self.long.insert(word.into(), range),
        };
    }
}

impl WordEncoder {
    /// `None` if the model is not of GPT-2's kind: it lacks a byte, uses merge dropout or marks
    /// words in another way.
    pub fn new(model: &BPE) -> Option<Self> {
        let plain = model.dropout.is_none_or(|dropout| dropout == 0.0)
            && model.continuing_subword_prefix.as_ref().is_none_or(String::is_empty)
            && model.end_of_word_suffix.as_ref().is_none_or(String::is_empty);
        (plain && byte_ids(model).is_some()).then(|| Self { model: model.clone(), caches: Mutex::default() })
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        let mut cache = self.caches.lock().ok().and_then(|mut free| free.pop()).unwrap_or_default();
        let result = split::words(text).try_for_each(|word| self.encode_word(word, &mut cache, ids));
        if let Ok(mut free) = self.caches.lock() {
            free.push(cache);
        }
        result
    }

    fn encode_word(&self, word: &str, cache: &mut WordCache, ids: &mut Vec<u32>) -> Result<(), Error> {
        let short = short_word(word.as_bytes());
        if let Some(known) = cache.get(word.as_bytes(), short) {
            ids.extend_from_slice(known);
            return Ok(());
        }
        let written: String = word.bytes().map(character).collect();
        let tokens =
            self.model.tokenize(&written).map_err(|error| Error::Unusable(format!("the tokenizer failed: {error}")))?;
        let start = ids.len();
        ids.extend(tokens.iter().map(|token| token.id));
        cache.insert(word.as_bytes(), short, &ids[start..]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_gpt2_writes_them() {
        assert_eq!(character(b'A'), 'A');
        assert_eq!(character(b' '), '\u{120}');
        assert_eq!(character(b'\n'), '\u{10a}');
        assert_eq!(character(0), '\u{100}');
        assert_eq!(character(0xad), '\u{143}');
        assert_eq!(bytes_of("\u{120}A").as_deref(), Some(&b" A"[..]));
        assert_eq!(bytes_of(" "), None);
        let all: String = (0..=255).map(character).collect();
        assert_eq!(bytes_of(&all), Some((0..=255).collect()));
    }
}
