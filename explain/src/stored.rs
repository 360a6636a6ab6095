//! A step's logits as they are stored: all of a small vocabulary; of a large one the best, and a
//! summary of the rest.
//!
//! A knob needs the sum over all tokens, but a page of a hundred steps cannot contain fifty
//! thousand logits for each. The rest is divided into groups by rank, each with at most one 64th as
//! many tokens as rank above it, so ranks stay known to 1.6 per cent; a group's logit is the
//! logarithm of the mean of its tokens' exponentials. Sums at temperature 1 are then exact. At
//! another temperature T a group of logits with variance v is off by the share `v (1/T^2 - 1/T) /
//! 2`; a group spans hundredths of a nat where its probability matters.

use serde::Serialize;

use ember_decoding::{logprobs::top_k, softmax::softmax};

/// The largest vocabulary whose logits are all stored.
const WHOLE: usize = 8000;

/// Logits stored one by one for a larger vocabulary, besides those of the tokens in the text.
const BEST: usize = 1000;

/// A group of the rest has one token for this many that rank above it, and at least one.
const RANKS_TO_ONE: usize = 64;

/// Number of survivors listed, for checking one's own arithmetic.
const SURVIVORS: usize = 40;

/// One step of the run.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub(super) step: usize,
    /// The positions of prompt and text that the model saw, as a half-open range.
    pub(super) window: [usize; 2],
    pub(super) logits: Logits,
    pub(super) draw: Option<f64>,
    pub(super) interval: Option<(f64, f64)>,
    pub(super) chosen: u32,
    pub(super) logprob: f32,
    pub(super) processed: Processed,
}

/// The model's logits at one step.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Logits {
    /// The tokens stored one by one, highest logit first; of equal ones the lower id first.
    pub(super) ids: Vec<u32>,
    pub(super) values: Vec<f32>,
    pub(super) tail: Tail,
}

/// The other logits in groups, highest first.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Tail {
    /// Number of tokens in each group.
    pub(super) counts: Vec<usize>,
    /// The logarithm of the mean of the exponentials of the group's logits.
    pub(super) logits: Vec<f32>,
}

impl Logits {
    /// Stores `logits` `[vocab]`; those of `seen` one by one, whatever their rank, since a penalty
    /// changes them individually.
    pub(super) fn of(logits: &[f32], seen: &[u32]) -> Self {
        let ranked = top_k(logits.len(), logits);
        let mut one_by_one = vec![logits.len() <= WHOLE; logits.len()];
        for &id in ranked.iter().take(BEST).chain(seen) {
            one_by_one[id as usize] = true;
        }
        let (ids, rest): (Vec<u32>, Vec<u32>) = ranked.into_iter().partition(|&id| one_by_one[id as usize]);
        let mut tail = Tail::default();
        let (mut rest, mut before) = (rest.as_slice(), ids.len());
        while !rest.is_empty() {
            let (group, others) = rest.split_at((before / RANKS_TO_ONE).clamp(1, rest.len()));
            tail.counts.push(group.len());
            tail.logits.push(mean_of_exponentials(group, logits));
            (rest, before) = (others, before + group.len());
        }
        Self { values: ids.iter().map(|&id| logits[id as usize]).collect(), ids, tail }
    }
}

/// The logarithm of the mean of the exponentials of the logits of `group`, which is not empty and
/// sorted best first.
fn mean_of_exponentials(group: &[u32], logits: &[f32]) -> f32 {
    let highest = f64::from(logits[group[0] as usize]);
    let sum: f64 = group.iter().map(|&id| (f64::from(logits[id as usize]) - highest).exp()).sum();
    (highest + (sum / group.len() as f64).ln()) as f32
}

/// The result of the run's knobs at one step.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Processed {
    /// Number of surviving tokens, in the whole vocabulary.
    pub(super) survivors: usize,
    /// The best of them, best first.
    pub(super) ids: Vec<u32>,
    /// Their probabilities.
    pub(super) probabilities: Vec<f32>,
}

impl Processed {
    /// The best survivors of `logits` `[vocab]`.
    pub(super) fn of(logits: &[f32]) -> Self {
        let survivors = logits.iter().filter(|&&logit| logit > f32::NEG_INFINITY).count();
        let probabilities = softmax(logits);
        let ids = top_k(SURVIVORS.min(survivors), logits);
        Self { survivors, probabilities: ids.iter().map(|&id| probabilities[id as usize]).collect(), ids }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ember_data::random::mix;
    use ember_decoding::softmax::log_sum_exp;

    /// Pseudo-random logits between -`spread` and `spread`, from `seed` and the ids before.
    fn scattered(seed: u64, vocab_size: usize, spread: f32, ids: &[u32]) -> Vec<f32> {
        let place = ids.iter().fold(mix(seed), |place, &id| mix(place ^ (u64::from(id) + 1)));
        let unit = |id: usize| (mix(place.wrapping_add(id as u64)) >> 40) as f32 / (1_u64 << 24) as f32; // in [0, 1)
        (0..vocab_size).map(|id| (2.0 * unit(id) - 1.0) * spread).collect()
    }

    /// Logits like a language model's: a few high ones, then falling with the logarithm of the
    /// rank, with noise.
    fn like_words(vocab_size: usize) -> Vec<f32> {
        let noise = scattered(3, vocab_size, 1.5, &[1, 2]);
        noise.iter().enumerate().map(|(id, noise)| noise - 1.1 * ((id * 7919 % vocab_size) as f32 + 1.0).ln()).collect()
    }

    #[test]
    fn a_small_vocabulary_is_stored_whole() {
        let stored = Logits::of(&[0.5, 2.0, 2.0, -1.0], &[3]);
        assert_eq!((stored.ids, stored.values), (vec![1, 2, 0, 3], vec![2.0, 2.0, 0.5, -1.0]));
        assert_eq!(stored.tail, Tail::default());
    }

    #[test]
    fn a_large_one_is_stored_in_part_and_loses_no_token() {
        let logits = like_words(50_257);
        let seen = top_k(logits.len(), &logits)[40_000];
        let stored = Logits::of(&logits, &[seen, seen]);
        assert_eq!(stored.ids.len(), 1001);
        assert_eq!(stored.ids[1000], seen);
        assert_eq!(stored.ids.len() + stored.tail.counts.iter().sum::<usize>(), 50_257);
        assert!(stored.tail.counts.len() < 260, "{}", stored.tail.counts.len());
        assert!(stored.tail.logits.windows(2).all(|pair| pair[0] >= pair[1]));
        let mut before = 1001;
        for count in stored.tail.counts {
            assert!(count * RANKS_TO_ONE <= before);
            before += count;
        }
    }

    #[test]
    fn the_sum_is_exact_at_temperature_1_and_every_probability_right_to_a_millionth_elsewhere() {
        for logits in [like_words(50_257), scattered(9, 50_257, 3.0, &[5]), vec![1.0; 9000]] {
            let stored = Logits::of(&logits, &[]);
            for temperature in [0.3, 0.7, 1.0, 1.3, 2.0, 5.0] {
                let scaled: Vec<f32> = logits.iter().map(|logit| logit / temperature).collect();
                let exact = log_sum_exp(&scaled);
                let term = |&logit: &f32| (f64::from(logit) / f64::from(temperature) - exact).exp();
                let listed: f64 = stored.values.iter().map(term).sum();
                let tail = stored.tail.counts.iter().zip(&stored.tail.logits);
                let total = listed + tail.map(|(&count, logit)| count as f64 * term(logit)).sum::<f64>();
                // The highest probability shows the largest error.
                let off = (term(&stored.values[0]) / total - term(&stored.values[0])).abs();
                assert!(off < 1e-6, "temperature {temperature}: off by {off:e}");
                if temperature == 1.0 {
                    assert!((total - 1.0).abs() < 1e-6, "{total}");
                }
            }
        }
    }

    #[test]
    fn survivors_are_counted_and_the_best_told() {
        let gone = f32::NEG_INFINITY;
        let processed = Processed::of(&[gone, 0.0, gone, 0.0]);
        assert_eq!(processed, Processed { survivors: 2, ids: vec![1, 3], probabilities: vec![0.5, 0.5] });
        let many = Processed::of(&[0.0; 100]);
        assert_eq!((many.survivors, many.ids.len()), (100, 40));
    }
}
