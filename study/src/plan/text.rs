//! Statistics of a text before training: its size, and how well counting alone predicts it.
//! [`super::fit`] starts from them.

use std::collections::BTreeMap;

use ember_data::ngrams::MAX_ORDER;
use ember_data::prepare::Dataset;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use ember_training::config::TextFacts;

/// Statistics of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Number of tokens for training.
    pub train_tokens: u64,
    /// Number of tokens held out.
    pub val_tokens: u64,
    /// Number of different tokens.
    pub vocab_size: usize,
    /// Losses of n-gram models ([`ember_data::ngrams`]).
    pub ngram_losses: [f64; MAX_ORDER],
    /// Loss of trigrams with a cache (the same module).
    pub trigram_cache_loss: f64,
    /// Nats per held-out token of a predictor that knows no words: it points at a token that is
    /// among the previous 64, and otherwise spells it by the frequency of its letters. This treats
    /// all alphabets alike, and makes code, which repeats itself, easier than its letters are.
    pub spelled_loss: f64,
    /// The entropy floor, the lowest loss that any model can have, where it is known: for the
    /// built-in stories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy_floor: Option<f64>,
}

impl Statistics {
    /// The statistics of a prepared text that is a `share` of the whole; its counts are scaled up
    /// to the whole.
    ///
    /// # Errors
    /// When the tokens cannot be read.
    pub fn new(dataset: &Dataset, share: f64) -> Result<Self> {
        let whole = |tokens: u64| (tokens as f64 / share) as u64;
        let manifest = &dataset.manifest;
        Ok(Self {
            train_tokens: whole(manifest.train.tokens),
            val_tokens: whole(manifest.val.tokens),
            vocab_size: manifest.vocab_size,
            ngram_losses: manifest.ngram_losses,
            trigram_cache_loss: manifest.trigram_cache_loss,
            spelled_loss: spelled_loss(dataset)?,
            entropy_floor: manifest.marks.map(|marks| marks.entropy_floor),
        })
    }

    /// The facts that the choice of a configuration needs.
    pub fn facts(&self) -> TextFacts {
        TextFacts { train_tokens: self.train_tokens, val_tokens: self.val_tokens, vocab_size: self.vocab_size }
    }
}

/// Previous tokens that the spelling predictor sees.
const REMEMBERED: usize = 64;

/// Number of held-out tokens that are spelled.
const SPELLED: usize = 50_000;

/// [`Statistics::spelled_loss`] of a prepared text.
fn spelled_loss(dataset: &Dataset) -> Result<f64> {
    let mut ids = Vec::new();
    dataset.val.get(0..dataset.val.len().min(SPELLED), &mut ids)?;
    let mut letters_of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for &id in &ids {
        letters_of.entry(id).or_insert_with(|| letters(&dataset.tokenizer.token_bytes(id).unwrap_or_default()));
    }
    let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
    for letter in ids.iter().flat_map(|id| &letters_of[id]) {
        *counts.entry(*letter).or_default() += 1.0;
    }
    let all: f64 = counts.values().sum();
    let spelled = |id: &u32| -> f64 { letters_of[id].iter().map(|letter| (all / counts[letter]).ln()).sum() };
    let loss = |(at, id): (usize, &u32)| {
        let is_near = ids[at.saturating_sub(REMEMBERED)..at].contains(id);
        if is_near { spelled(id).min((REMEMBERED as f64).ln()) } else { spelled(id) }
    };
    Ok(ids.iter().enumerate().map(loss).sum::<f64>() / ids.len().max(1) as f64)
}

/// The characters of a token, or its bytes if it is part of a character.
fn letters(token: &[u8]) -> Vec<u32> {
    match str::from_utf8(token) {
        Ok(text) => text.chars().map(u32::from).collect(),
        Err(_) => token.iter().map(|byte| u32::from(char::MAX) + 1 + u32::from(*byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ember_data::prepare::{PrepareOptions, Silent, prepare};
    use ember_data::source::Input;
    use ember_data::tokenizer::TokenizerChoice;

    use super::*;

    #[test]
    fn every_alphabet_says_as_much() {
        let latin: String = (0..4000u32).map(|i| char::from(b'a' + (i * i % 23 % 7) as u8)).collect();
        let cyrillic: String =
            latin.chars().map(|letter| char::from_u32('а' as u32 + letter as u32 - 97).unwrap()).collect();
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [("latin", latin), ("cyrillic", cyrillic)].map(|(name, text)| {
            let file = folder.path().join(format!("{name}.txt"));
            std::fs::write(&file, text).unwrap();
            let options = PrepareOptions {
                inputs: vec![Input::Path(file)],
                tokenizer: TokenizerChoice::Chars,
                out: folder.path().join(name),
                ..PrepareOptions::default()
            };
            prepare(&options, &Silent).unwrap();
            Statistics::new(&Dataset::open(&options.out).unwrap(), 1.0).unwrap().spelled_loss
        });
        assert!((one - other).abs() < 1e-12 && (0.5..7f64.ln()).contains(&one), "{one} {other}");
    }
}
