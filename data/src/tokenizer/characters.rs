//! A character-level encoder with a fixed alphabet.

use ahash::AHashMap;
use tokenizers::pre_tokenizers::split::SplitPattern;

/// A character outside the alphabet of a character tokenizer, and its position; lines and
/// characters count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "character {character:?} (U+{:04X}) in line {line}, character {position} of the text, is not among the {alphabet} characters \
     of this tokenizer; remove it, or train with the tokenizer \"bytes\" or \"bpe:8192\", which encode any text",
    u32::from(*character)
)]
pub struct UnknownCharacter {
    /// The character.
    pub character: char,
    /// Its line in the document.
    pub line: u64,
    /// Its position in the document, in characters.
    pub position: u64,
    /// Number of characters that the tokenizer knows.
    pub alphabet: usize,
}

/// The pattern by which a character tokenizer splits text.
pub fn every_character() -> SplitPattern {
    SplitPattern::Regex(r"[\s\S]".to_owned())
}

/// Encodes character by character.
pub struct CharEncoder {
    ascii: Box<[Option<u32>; 128]>,
    others: AHashMap<char, u32>,
    alphabet: usize,
}

impl CharEncoder {
    /// `None` if a token of the vocabulary is not a single character.
    pub fn new(vocabulary: impl Iterator<Item = (String, u32)>) -> Option<Self> {
        let mut encoder = Self { ascii: Box::new([None; 128]), others: AHashMap::new(), alphabet: 0 };
        for (token, id) in vocabulary {
            let mut characters = token.chars();
            let (Some(character), None) = (characters.next(), characters.next()) else { return None };
            match encoder.ascii.get_mut(character as usize) {
                Some(slot) => *slot = Some(id),
                None => _ = encoder.others.insert(character, id),
            }
            encoder.alphabet += 1;
        }
        Some(encoder)
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), UnknownCharacter> {
        for (at, character) in text.char_indices() {
            let id = match self.ascii.get(character as usize) {
                Some(slot) => *slot,
                None => self.others.get(&character).copied(),
            };
            let Some(id) = id else {
                let before = &text[..at];
                return Err(UnknownCharacter {
                    character,
                    line: before.bytes().filter(|&byte| byte == b'\n').count() as u64 + 1,
                    position: before.chars().count() as u64 + 1,
                    alphabet: self.alphabet,
                });
            };
            ids.push(id);
        }
        Ok(())
    }
}
