//! What a text is like to a model that is about to learn it: how much there is, and how far
//! counting alone predicts it.
//!
//! The losses of n-gram models on the held-out split are quick to have and say what no size says:
//! how much of the text hangs on the last few tokens, under this very tokenizer. [`super::fit`]
//! begins from them.

use std::iter::once;

use ahash::AHashMap;
use ember_data::{prepare::Dataset, random::mix, tokens::TokenFile};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use ember_training::config::TextFacts;

/// The longest context that is counted, and the token after it.
pub const MOST_ORDER: usize = 6;

/// Tokens that are counted, and tokens that are predicted from the counts: under two seconds.
const COUNTED: usize = 500_000;
const PREDICTED: usize = 50_000;

/// A text in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Tokens to train on.
    pub train_tokens: u64,
    /// Tokens held out.
    pub val_tokens: u64,
    /// Different tokens.
    pub vocab_size: usize,
    /// Loss on the held-out split, in nats per token, of n-gram models for n = 1 to [`MOST_ORDER`]
    /// that counted at most 500,000 tokens.
    pub ngram_losses: [f64; MOST_ORDER],
    /// Bytes of held-out text for each token of it.
    pub bytes_per_token: f64,
    /// The least loss that any model can have, where it is known: on the built-in stories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy_floor: Option<f64>,
}

impl Statistics {
    /// The statistics of a prepared text that is a `share` of the whole, which its counts are
    /// scaled up to.
    ///
    /// # Errors
    /// When the tokens cannot be read.
    pub fn new(dataset: &Dataset, share: f64) -> Result<Self> {
        let whole = |tokens: u64| (tokens as f64 / share) as u64;
        let manifest = &dataset.manifest;
        let (counted, predicted) = (spread(&dataset.train, COUNTED)?, spread(&dataset.val, PREDICTED)?);
        Ok(Self {
            train_tokens: whole(manifest.train.tokens),
            val_tokens: whole(manifest.val.tokens),
            vocab_size: manifest.vocab_size,
            ngram_losses: ngram_losses(&counted, &predicted, manifest.vocab_size),
            bytes_per_token: manifest.val.bytes as f64 / manifest.val.tokens.max(1) as f64,
            entropy_floor: manifest.marks.map(|marks| marks.entropy_floor),
        })
    }

    /// What the choice of a configuration needs.
    pub fn facts(&self) -> TextFacts {
        TextFacts { train_tokens: self.train_tokens, val_tokens: self.val_tokens, vocab_size: self.vocab_size }
    }
}

/// At most `most` tokens, in blocks at even distances.
fn spread(tokens: &TokenFile, most: usize) -> Result<Vec<u32>> {
    const BLOCKS: usize = 16;
    let mut ids = Vec::with_capacity(most.min(tokens.len()));
    if tokens.len() <= most {
        tokens.get(0..tokens.len(), &mut ids)?;
        return Ok(ids);
    }
    for block in 0..BLOCKS {
        let start = tokens.len() / BLOCKS * block;
        tokens.get(start..start + most / BLOCKS, &mut ids)?;
    }
    Ok(ids)
}

/// How often a context was seen, and with how many different tokens after it.
#[derive(Clone, Copy, Default)]
struct Seen {
    times: u32,
    different: u32,
}

/// Loss in nats per token on `held_out` of the n-gram models that counted `train`, each smoothed by
/// the one below it in the manner of [Witten and Bell 1991](https://doi.org/10.1109/18.87000),
/// method C: a context's different continuations stand for how often something new comes after it.
fn ngram_losses(train: &[u32], held_out: &[u32], vocab_size: usize) -> [f64; MOST_ORDER] {
    // One table: of a context's own key, and of the key of a context with its continuation.
    let mut counts = AHashMap::<u64, Seen>::default();
    for (end, &token) in train.iter().enumerate() {
        for key in contexts(&train[..end]) {
            let pair = counts.entry(continued(key, token)).or_default();
            pair.times += 1;
            let new = u32::from(pair.times == 1);
            let context = counts.entry(key).or_default();
            context.times += 1;
            context.different += new;
        }
    }
    let mut losses = [0.0; MOST_ORDER];
    for (end, &token) in held_out.iter().enumerate() {
        let mut probability = 1.0 / vocab_size as f64;
        let mut keys = contexts(&held_out[..end]);
        for loss in &mut losses {
            if let Some(key) = keys.next()
                && let Some(context) = counts.get(&key)
            {
                let times = counts.get(&continued(key, token)).map_or(0, |pair| pair.times);
                let new = f64::from(context.different);
                probability = (f64::from(times) + new * probability) / (f64::from(context.times) + new);
            }
            *loss -= probability.ln();
        }
    }
    losses.map(|loss| loss / held_out.len().max(1) as f64)
}

/// The keys of the last 0, 1, 2, ... tokens of a text: each is that of the one before it, with one
/// more token at its beginning.
fn contexts(text: &[u32]) -> impl Iterator<Item = u64> {
    let tokens = text.iter().rev().take(MOST_ORDER - 1);
    once(0).chain(tokens.scan(0, |key, token| {
        *key = mix(*key ^ (u64::from(*token) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Some(*key)
    }))
}

/// The key of a context and the token after it.
fn continued(key: u64, token: u32) -> u64 {
    mix(mix(key ^ 0xc0ff_ee00_dead_beef) ^ u64::from(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_needs_one_token_to_be_foreseen_and_noise_is_never() {
        let cycle: Vec<u32> = (0..30_000).map(|i| i % 7).collect();
        let losses = ngram_losses(&cycle, &cycle[..700], 7);
        assert!((losses[0] - 7f64.ln()).abs() < 1e-3, "{losses:?}");
        assert!(losses[1..].iter().all(|loss| *loss < 0.02), "{losses:?}");
        let noise: Vec<u32> = (0..60_000u64).map(|i| (mix(i) % 16) as u32).collect();
        let losses = ngram_losses(&noise[..50_000], &noise[50_000..], 16);
        assert!(losses.iter().all(|loss| *loss > 16f64.ln() - 0.01), "{losses:?}");
    }

    #[test]
    fn two_tokens_by_hand() {
        // a b a b c: a unigram model saw 5 tokens, 3 different; "a" twice: (2 + 3/4) / 8.
        let losses = ngram_losses(&[0, 1, 0, 1, 2], &[0, 1], 4);
        let unigram = (2.0 + 0.75) / 8.0f64;
        assert!((losses[0] + unigram.ln()).abs() < 1e-12, "{losses:?}");
        // After "a" came "b" twice and nothing else: (2 + 1 * unigram) / 3. The first token has no
        // context and stays.
        let bigram = (2.0 + unigram) / 3.0;
        assert!((losses[1] + (unigram.ln() + bigram.ln()) / 2.0).abs() < 1e-12, "{losses:?}");
    }
}
