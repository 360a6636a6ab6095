//! Losses of n-gram models on the held-out split. They are computed quickly and show how much of
//! the text depends on the last few tokens, under the tokenizer in use. What a model learns beyond
//! counting shows as a loss below theirs.

use std::iter::once;

use ahash::AHashMap;

use crate::random::mix;
use crate::tokens::{Error, TokenFile};

/// The longest n-gram that is counted, including the predicted token.
pub const MAX_ORDER: usize = 6;

/// Tokens counted, and tokens predicted from the counts: takes under two seconds.
const COUNTED_TOKENS: usize = 500_000;
const PREDICTED_TOKENS: usize = 50_000;

/// Tokens in the cache.
const CACHE_TOKENS: usize = 64;

/// Weights of the cache that are tried.
const CACHE_WEIGHTS: [f64; 7] = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4];

/// Losses on a held-out text, in nats per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// Losses of n-gram models, for n = 1 to [`MAX_ORDER`].
    pub ngrams: [f64; MAX_ORDER],
    /// Loss of a trigram model with a cache of the last 64 tokens ([Kuhn and De Mori
    /// 1990](https://doi.org/10.1109/34.56193)), at the cache weight that fits the text best.
    /// Repetition within a page, as in code, is easy for a model to learn, but no n-gram counts of
    /// other pages predict it.
    pub trigram_cache: f64,
}

/// Losses on `val` of models that counted at most 500,000 tokens of `train`.
///
/// # Errors
/// When the tokens cannot be read.
pub fn losses(train: &TokenFile, val: &TokenFile) -> Result<Losses, Error> {
    Ok(losses_of(&sample(train, COUNTED_TOKENS)?, &sample(val, PREDICTED_TOKENS)?, train.vocab_size))
}

/// At most `most` tokens, in evenly spaced blocks.
fn sample(tokens: &TokenFile, most: usize) -> Result<Vec<u32>, Error> {
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

/// How often a context was seen, and with how many distinct next tokens.
#[derive(Clone, Copy, Default)]
struct ContextCount {
    times: u32,
    distinct_next: u32,
}

/// The counts of all n-gram models in one table: contexts, and contexts with their next token.
struct Counts(AHashMap<u64, ContextCount>);

impl Counts {
    /// Counts `train`, but only contexts of the held-out text, since no others are looked up.
    fn of(train: &[u32], held_out: &[u32]) -> Self {
        let mut counts = AHashMap::<u64, ContextCount>::default();
        for end in 0..held_out.len() {
            context_keys(&held_out[..end]).for_each(|key| _ = counts.entry(key).or_default());
        }
        for (end, &token) in train.iter().enumerate() {
            for key in context_keys(&train[..end]) {
                // If the held-out text lacks a context, it lacks all longer ones that end with it.
                let Some(context) = counts.get_mut(&key) else { break };
                context.times += 1;
                let pair = counts.entry(continuation_key(key, token)).or_default();
                pair.times += 1;
                if pair.times == 1
                    && let Some(context) = counts.get_mut(&key)
                {
                    context.distinct_next += 1;
                }
            }
        }
        Self(counts)
    }

    /// The probability of `token` after `text` under each model, from unigrams on. Each is smoothed
    /// by the one of next lower order with method C of [Witten and Bell
    /// 1991](https://doi.org/10.1109/18.87000): the number of a context's distinct continuations
    /// stands for how often something new follows it.
    fn probabilities(&self, text: &[u32], token: u32, vocab_size: usize) -> [f64; MAX_ORDER] {
        let mut probability = 1.0 / vocab_size as f64;
        let mut keys = context_keys(text);
        std::array::from_fn(|_| {
            if let Some(key) = keys.next()
                && let Some(context) = self.0.get(&key).filter(|context| context.times > 0)
            {
                let times = self.0.get(&continuation_key(key, token)).map_or(0, |pair| pair.times);
                let new = f64::from(context.distinct_next);
                probability = (f64::from(times) + new * probability) / (f64::from(context.times) + new);
            }
            probability
        })
    }
}

/// Losses on `held_out` of the models that counted `train`.
fn losses_of(train: &[u32], held_out: &[u32], vocab_size: usize) -> Losses {
    let counts = Counts::of(train, held_out);
    let (mut ngrams, mut with_cache) = ([0.0; MAX_ORDER], [0.0; CACHE_WEIGHTS.len()]);
    for (end, &token) in held_out.iter().enumerate() {
        let probabilities = counts.probabilities(&held_out[..end], token, vocab_size);
        ngrams.iter_mut().zip(probabilities).for_each(|(loss, probability)| *loss -= probability.ln());
        let trigram = probabilities[2];
        let cached = cache_probability(&held_out[end.saturating_sub(CACHE_TOKENS)..end], token);
        let mixed = |share: f64| (1.0 - share) * trigram + share * cached;
        with_cache.iter_mut().zip(CACHE_WEIGHTS).for_each(|(loss, share)| *loss -= mixed(share).ln());
    }
    let tokens = held_out.len().max(1) as f64;
    let best = with_cache.into_iter().fold(f64::INFINITY, f64::min);
    Losses { ngrams: ngrams.map(|loss| loss / tokens), trigram_cache: best / tokens }
}

/// The cache's probability of `token` after the tokens `last`: half its frequency among them, half
/// its frequency after the latest of them.
fn cache_probability(last: &[u32], token: u32) -> f64 {
    let share = |of: &mut dyn Iterator<Item = u32>| {
        let (all, same) = of.fold((0, 0), |(all, same), id| (all + 1, same + u32::from(id == token)));
        (all > 0).then(|| f64::from(same) / f64::from(all))
    };
    let among = share(&mut last.iter().copied()).unwrap_or(0.0);
    let here = last.last();
    let behind = share(&mut last.windows(2).filter(|pair| Some(&pair[0]) == here).map(|pair| pair[1]));
    0.5 * (among + behind.unwrap_or(among))
}

/// The keys of the last 0, 1, 2, ... tokens of a text. Each key extends the one before by one
/// earlier token.
fn context_keys(text: &[u32]) -> impl Iterator<Item = u64> {
    let tokens = text.iter().rev().take(MAX_ORDER - 1);
    once(0).chain(tokens.scan(0, |key, token| {
        *key = mix(*key ^ (u64::from(*token) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Some(*key)
    }))
}

/// The key of a context with its next token.
fn continuation_key(key: u64, token: u32) -> u64 {
    mix(mix(key ^ 0xc0ff_ee00_dead_beef) ^ u64::from(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_needs_one_token_to_be_foreseen_and_noise_is_never() {
        let cycle: Vec<u32> = (0..30_000).map(|i| i % 7).collect();
        let losses = losses_of(&cycle, &cycle[..700], 7).ngrams;
        assert!((losses[0] - 7f64.ln()).abs() < 1e-3, "{losses:?}");
        assert!(losses[1..].iter().all(|loss| *loss < 0.02), "{losses:?}");
        let noise: Vec<u32> = (0..60_000u64).map(|i| (mix(i) % 16) as u32).collect();
        let losses = losses_of(&noise[..50_000], &noise[50_000..], 16).ngrams;
        assert!(losses.iter().all(|loss| *loss > 16f64.ln() - 0.01), "{losses:?}");
    }

    #[test]
    fn two_tokens_by_hand() {
        // a b a b c: the unigram model saw 5 tokens, 3 of them different; "a" twice: (2 + 3/4) / 8.
        let losses = losses_of(&[0, 1, 0, 1, 2], &[0, 1], 4).ngrams;
        let unigram = (2.0 + 0.75) / 8.0f64;
        assert!((losses[0] + unigram.ln()).abs() < 1e-12, "{losses:?}");
        // After "a" came only "b", twice: (2 + 1 * unigram) / 3. The first token has no context, so
        // its loss stays.
        let bigram = (2.0 + unigram) / 3.0;
        assert!((losses[1] + (unigram.ln() + bigram.ln()) / 2.0).abs() < 1e-12, "{losses:?}");
    }

    #[test]
    fn a_cache_foresees_what_was_said_on_this_page_alone() {
        // After 1 came 2 twice and 3 once; 2 is two of the seven.
        let page = [1, 2, 1, 2, 1, 3, 1];
        assert!((cache_probability(&page, 2) - 0.5 * (2.0 / 7.0 + 2.0 / 3.0)).abs() < 1e-12);
        assert!((cache_probability(&[4, 5], 4) - 0.5).abs() < 1e-12, "nothing came behind 5");
        assert_eq!((cache_probability(&page, 9), cache_probability(&[], 9)), (0.0, 0.0));
        // Names that are new on each page, each occurring twenty times.
        let pages = |from: u64| (from..from + 400).flat_map(|page| (0..20).map(move |_| (mix(page) % 1000) as u32));
        let (train, held_out): (Vec<u32>, Vec<u32>) = (pages(0).collect(), pages(1000).collect());
        let losses = losses_of(&train, &held_out, 1000);
        assert!(losses.trigram_cache < 0.9 * losses.ngrams[2], "{losses:?}");
    }
}
