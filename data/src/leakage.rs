//! Leakage: how much of the held-out text also occurs in the training text, measured on the tokens
//! as written, whatever split produced them.
//!
//! The unit is a stretch (an n-gram of tokens) of about 64 bytes of text, some thirteen words,
//! inside a document. In a large text only a sample of stretches, selected by their own tokens, is
//! looked up in the training text.

use crate::tokens::{Error, TokenFile};
use ahash::AHashMap;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Approximate bytes of a stretch.
const STRETCH_BYTES: f64 = 64.0;

/// Approximate maximum number of stretches looked up.
const MAX_STRETCHES: usize = 1 << 18;

/// Tokens read at once: few enough to stay in the processor's cache.
const BLOCK: usize = 1 << 16;

/// The measured leakage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leakage {
    /// Tokens per stretch.
    pub tokens: usize,
    /// Sampled stretches of the validation text.
    pub stretches: u64,
    /// Those that also occur in the training text.
    pub in_training: u64,
}

impl Leakage {
    /// The fraction of the sampled stretches found in training; 0 if the text is too short to have
    /// any.
    pub fn share(&self) -> f64 {
        self.in_training as f64 / self.stretches.max(1) as f64
    }
}

/// Looks up stretches of `val` in `train`; `end_of_text` separates documents.
///
/// # Errors
/// When the tokens cannot be read.
pub fn leakage(
    train: &TokenFile,
    val: &TokenFile,
    end_of_text: Option<u32>,
    bytes_per_token: f64,
) -> Result<Leakage, Error> {
    let tokens = (STRETCH_BYTES / bytes_per_token).round().clamp(4.0, STRETCH_BYTES) as usize;
    let sampler = StretchSampler { tokens, one_in: val.len().div_ceil(MAX_STRETCHES).next_power_of_two() as u64 };
    let wanted = WantedStretches::find(&sampler, val, end_of_text)?;
    let blocks: Vec<usize> = (0..train.len()).step_by(BLOCK).collect();
    blocks.into_par_iter().try_for_each_init(Buffers::default, |buffers, start| {
        // No wanted stretch contains an end of text, so stretches of `train` with one never match.
        sampler.for_each_in_block(train, start, buffers, &mut |_, hash| wanted.mark_seen(hash))
    })?;
    let [stretches, in_training] = wanted.counts();
    Ok(Leakage { tokens, stretches, in_training })
}

/// The sampled validation stretches, by hash.
struct WantedStretches {
    /// How often each occurs in the validation text, and whether it was seen in training.
    times: AHashMap<u64, (u64, AtomicBool)>,
    /// A Bloom filter with one hash function: it rejects most training stretches faster than the
    /// map.
    filter: Vec<u64>,
}

impl WantedStretches {
    /// The stretches of `val` that do not span two documents.
    fn find(sampler: &StretchSampler, val: &TokenFile, end_of_text: Option<u32>) -> Result<Self, Error> {
        let mut times = AHashMap::<u64, (u64, AtomicBool)>::with_capacity(val.len() / sampler.one_in as usize);
        let (mut buffers, mut ids) = (Buffers::default(), Vec::new());
        for start in (0..val.len()).step_by(BLOCK) {
            sampler.for_each_in_block(val, start, &mut buffers, &mut |bytes, hash| {
                ids.clear();
                val.push_ids(bytes, &mut ids);
                if !end_of_text.is_some_and(|end| ids.contains(&end)) {
                    times.entry(hash).or_default().0 += 1;
                }
            })?;
        }
        let mut filter = vec![0; (16 * times.len()).next_power_of_two().max(64) / 64];
        for &hash in times.keys() {
            let (word, bit) = Self::filter_bit(hash, filter.len());
            filter[word] |= bit;
        }
        Ok(Self { times, filter })
    }

    /// Index of the filter word that holds the bit of a hash, and the bit.
    fn filter_bit(hash: u64, words: usize) -> (usize, u64) {
        let bit = hash >> 32;
        ((bit / 64) as usize & (words - 1), 1 << (bit % 64))
    }

    /// Marks a stretch of the training text as seen.
    fn mark_seen(&self, hash: u64) {
        let (word, bit) = Self::filter_bit(hash, self.filter.len());
        if self.filter[word] & bit != 0
            && let Some((_, seen)) = self.times.get(&hash)
        {
            // Written only once: memory that is only read can be cached by all cores.
            if !seen.load(Ordering::Relaxed) {
                seen.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The number of sampled occurrences in the validation text, and of those seen in training.
    fn counts(&self) -> [u64; 2] {
        let all = self.times.values();
        let seen = all.clone().filter(|(_, seen)| seen.load(Ordering::Relaxed));
        [all.map(|(times, _)| times).sum(), seen.map(|(times, _)| times).sum()]
    }
}

/// Buffers reused from block to block.
#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    /// The two lower bytes of each id.
    halves: Vec<u16>,
}

/// Selects a sample of the stretches of a text: those with the lowest sums. A stretch's sum, modulo
/// 2^16, takes eight of its tokens, some of them repeatedly if it has fewer, each times one of the
/// [`FACTORS`], so equal stretches are selected in both texts. A hash would select as well, but the
/// processor computes many of these sums at once, so skipping stretches costs next to nothing.
///
/// For example, with 16 tokens and one in 4, the stretch `t` is selected if
/// `t[0] * FACTORS[0] + t[2] * FACTORS[1] + t[4] * FACTORS[2] + .. + t[15] * FACTORS[7]` is at most
/// 2^14 - 1, as a quarter of all sums are.
struct StretchSampler {
    tokens: usize,
    /// One in this many is selected, a power of two.
    one_in: u64,
}

/// Factors of the tokens in a stretch's sum.
const FACTORS: [u16; 8] = [0x9e37, 0x79b9, 0x7f4b, 0xf39d, 0xc2b3, 0x85eb, 0xa6c9, 0x27d5];

/// Sums computed at once.
const LANES: usize = 32;

impl StretchSampler {
    /// Indices of the tokens in a stretch's sum, evenly spaced from the first to the last: of 16
    /// tokens 0, 2, 4, 6, 8, 10, 12 and 15.
    fn summed_tokens(&self) -> [usize; FACTORS.len()] {
        std::array::from_fn(|number| (self.tokens - 1) * number / (FACTORS.len() - 1))
    }

    /// The highest sum of a selected stretch: if one in 4 is selected, the quarter of the sums whose
    /// two highest bits are 0.
    fn threshold(&self) -> u16 {
        u16::MAX >> self.one_in.ilog2().min(u16::BITS - 1)
    }

    /// Calls `each` for the selected stretches that begin in the block at token `start`, with the
    /// bytes of their ids and their hash.
    fn for_each_in_block(
        &self,
        text: &TokenFile,
        start: usize,
        buffers: &mut Buffers,
        each: &mut impl FnMut(&[u8], u64),
    ) -> Result<(), Error> {
        let Buffers { bytes, halves } = buffers;
        let ids = start..text.len().min(start + BLOCK + self.tokens - 1);
        text.read(ids.clone(), bytes)?;
        let Some(count) = (ids.len() + 1).checked_sub(self.tokens) else { return Ok(()) };
        halves.clear();
        text.push_lower_halves(bytes, halves);
        halves.resize(ids.len() + LANES, 0); // padding for reads past the last id
        let (summed_tokens, threshold) = (self.summed_tokens(), self.threshold());
        let width = bytes.len() / ids.len();
        for first in (0..count).step_by(LANES) {
            // Sums of the stretches that begin at `first`, `first + 1`, ..: `sums[lane]` takes, for
            // each factor, the token at `first + lane + index`, so neighbouring lanes read
            // neighbouring tokens, as vector instructions do.
            let mut sums = [0u16; LANES];
            for (index, factor) in summed_tokens.into_iter().zip(FACTORS) {
                let halves = &halves[first + index..][..LANES];
                sums.iter_mut().zip(halves).for_each(|(sum, half)| *sum = sum.wrapping_add(half.wrapping_mul(factor)));
            }
            // In a large text mostly none is selected. A fold compares all sums at once, where `any`
            // would stop at the first.
            if sums.iter().fold(false, |any, &sum| any | (sum <= threshold)) {
                for (at, _) in (first..count).zip(sums).filter(|&(_, sum)| sum <= threshold) {
                    let stretch = &bytes[width * at..width * (at + self.tokens)];
                    each(stretch, xxh3_64(stretch));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::mix;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn found(train: &[u32], val: &[u32], end: Option<u32>) -> Leakage {
        let [train, val] = [train, val].map(|ids| TokenFile::from_ids(ids, 1000).unwrap());
        leakage(&train, &val, end, 16.0).unwrap()
    }

    #[test]
    fn the_sum_of_a_stretch_takes_tokens_from_its_first_to_its_last() {
        let sampler = StretchSampler { tokens: 16, one_in: 4 };
        assert_eq!(sampler.summed_tokens(), [0, 2, 4, 6, 8, 10, 12, 15]);
        assert_eq!(sampler.threshold(), (1 << 14) - 1);
        let short = StretchSampler { tokens: 4, one_in: 1 };
        assert_eq!(short.summed_tokens(), [0, 0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(short.threshold(), u16::MAX);
    }

    #[test]
    fn what_teaches_too_is_found_and_nothing_across_documents() {
        let train: Vec<u32> = (0..100).collect();
        assert_eq!(found(&train, &[50, 51, 52, 53, 54], None), Leakage { tokens: 4, stretches: 2, in_training: 2 });
        assert_eq!(found(&train, &[50, 51, 52, 53, 99], None).share(), 0.5);
        assert_eq!(found(&train, &[50, 51, 52, 53], Some(52)), Leakage { tokens: 4, stretches: 0, in_training: 0 });
        assert_eq!(found(&[], &[1, 2, 3], None).share(), 0.0);
    }

    #[test]
    fn a_sample_of_a_large_text_tells_its_share() {
        // A fifth of a million tokens occurs in training, across block boundaries.
        let val: Vec<u32> = (0..1_000_000).map(|place| (mix(place) % 900) as u32).collect();
        let train: Vec<u32> =
            (0..300_000).map(|place| (mix(place + (1 << 40)) % 900) as u32).chain(val[..200_000].to_vec()).collect();
        let found = found(&train, &val, None);
        assert!((200_000..300_000).contains(&found.stretches), "{found:?}");
        assert!((found.share() - 0.2).abs() < 0.005, "{found:?}");
    }

    proptest! {
        #[test]
        fn as_counted_one_by_one(
            train in proptest::collection::vec(0u32..4, 0..200), val in proptest::collection::vec(0u32..4, 0..100),
        ) {
            let stretches = |ids: &[u32]| -> Vec<Vec<u32>> {
                ids.windows(4).filter(|stretch| !stretch.contains(&0)).map(<[u32]>::to_vec).collect()
            };
            let taught: BTreeSet<_> = stretches(&train).into_iter().collect();
            let held_out = stretches(&val);
            let in_training = held_out.iter().filter(|stretch| taught.contains(*stretch)).count() as u64;
            let expected = Leakage { tokens: 4, stretches: held_out.len() as u64, in_training };
            prop_assert_eq!(found(&train, &val, Some(0)), expected);
        }
    }
}
