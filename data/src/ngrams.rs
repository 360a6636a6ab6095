//! How far counting alone predicts a text: the losses of n-gram models on the held-out split. They
//! are quick to have and say what no size says: how much of the text hangs on the last few tokens,
//! under this very tokenizer. What a model learns beyond counting is what is below them.

use std::iter::once;

use ahash::AHashMap;

use crate::random::mix;
use crate::tokens::{Error, TokenFile};

/// The longest context that is counted, and the token after it.
pub const MOST_ORDER: usize = 6;

/// Tokens that are counted, and tokens that are predicted from the counts: under two seconds.
const COUNTED: usize = 500_000;
const PREDICTED: usize = 50_000;

/// Loss on `val`, in nats per token, of n-gram models for n = 1 to [`MOST_ORDER`] that counted at
/// most 500,000 tokens of `train`.
///
/// # Errors
/// When the tokens cannot be read.
pub fn losses(train: &TokenFile, val: &TokenFile) -> Result<[f64; MOST_ORDER], Error> {
    Ok(losses_of(&spread(train, COUNTED)?, &spread(val, PREDICTED)?, train.vocab_size))
}

/// At most `most` tokens, in blocks at even distances.
fn spread(tokens: &TokenFile, most: usize) -> Result<Vec<u32>, Error> {
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
fn losses_of(train: &[u32], held_out: &[u32], vocab_size: usize) -> [f64; MOST_ORDER] {
    // One table: of a context's own key, and of the key of a context with its continuation.
    // Only contexts of the held-out text are asked for, so only these are counted: where one is not
    // among them, no longer one is.
    let mut counts = AHashMap::<u64, Seen>::default();
    for end in 0..held_out.len() {
        contexts(&held_out[..end]).for_each(|key| _ = counts.entry(key).or_default());
    }
    for (end, &token) in train.iter().enumerate() {
        for key in contexts(&train[..end]) {
            let Some(context) = counts.get_mut(&key) else { break };
            context.times += 1;
            let pair = counts.entry(continued(key, token)).or_default();
            pair.times += 1;
            if pair.times == 1
                && let Some(context) = counts.get_mut(&key)
            {
                context.different += 1;
            }
        }
    }
    let mut losses = [0.0; MOST_ORDER];
    for (end, &token) in held_out.iter().enumerate() {
        let mut probability = 1.0 / vocab_size as f64;
        let mut keys = contexts(&held_out[..end]);
        for loss in &mut losses {
            if let Some(key) = keys.next()
                && let Some(context) = counts.get(&key).filter(|context| context.times > 0)
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
        let losses = losses_of(&cycle, &cycle[..700], 7);
        assert!((losses[0] - 7f64.ln()).abs() < 1e-3, "{losses:?}");
        assert!(losses[1..].iter().all(|loss| *loss < 0.02), "{losses:?}");
        let noise: Vec<u32> = (0..60_000u64).map(|i| (mix(i) % 16) as u32).collect();
        let losses = losses_of(&noise[..50_000], &noise[50_000..], 16);
        assert!(losses.iter().all(|loss| *loss > 16f64.ln() - 0.01), "{losses:?}");
    }

    #[test]
    fn two_tokens_by_hand() {
        // a b a b c: a unigram model saw 5 tokens, 3 different; "a" twice: (2 + 3/4) / 8.
        let losses = losses_of(&[0, 1, 0, 1, 2], &[0, 1], 4);
        let unigram = (2.0 + 0.75) / 8.0f64;
        assert!((losses[0] + unigram.ln()).abs() < 1e-12, "{losses:?}");
        // After "a" came "b" twice and nothing else: (2 + 1 * unigram) / 3. The first token has no
        // context and stays.
        let bigram = (2.0 + unigram) / 3.0;
        assert!((losses[1] + (unigram.ln() + bigram.ln()) / 2.0).abs() < 1e-12, "{losses:?}");
    }
}
