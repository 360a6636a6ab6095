//! Top-p: as few tokens as make up a probability.

use super::survivors::{Slices, Survivors, order, walk};
use super::{LogitsProcessor, Step};
use crate::softmax::highest;

/// Keeps the nucleus: the most probable tokens up to and with the one that brings their sum to p
/// ([Holtzman et al. 2020, section 3.1](https://arxiv.org/abs/1904.09751); transformers `TopPLogitsWarper`).
///
/// Stated from the other end, as transformers computes it: in ascending order, tokens go while the probability that has
/// gone, summed in float64 and rounded to float32, is at most 1 - p. Among equal logits the lower ids go first.
#[derive(Clone, Copy, Debug)]
pub struct TopP {
    /// The nucleus's probability, in (0, 1].
    pub p: f64,
    /// The least number of tokens that stay, at least 1.
    pub keep: usize,
}

impl LogitsProcessor for TopP {
    fn name(&self) -> &'static str {
        "top-p"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        let Some(left) = Survivors::beyond(self.keep, logits) else { return };
        let limit = (1.0 - self.p) as f32;
        let (slices, distances) = from_the_best(&left);
        let walk = walk(
            &left.probabilities(),
            |index| slices.inward(distances(index)),
            |a, b| order(left.logits[a], left.logits[b]),
            |gone| gone as f32 <= limit,
        );
        let descending = |a: usize, b: usize| order(left.logits[b], left.logits[a]).then(b.cmp(&a));
        left.remove_but(self.keep, walk.passed, descending, logits);
    }
}

/// Keeps tokens in descending order until their sum, in float64, is at least p, of equal logits the lower ids first:
/// llama.cpp's top-p.
///
/// The rule is [`TopP`]'s seen from the top; which of several equal logits stay, and what rounding does where the sum is p
/// but for a millionth, differ.
#[derive(Clone, Copy, Debug)]
pub struct TopPFromTheTop {
    /// The nucleus's probability, in (0, 1].
    pub p: f64,
    /// The least number of tokens that stay, at least 1.
    pub keep: usize,
}

impl LogitsProcessor for TopPFromTheTop {
    fn name(&self) -> &'static str {
        "top-p"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        let Some(left) = Survivors::beyond(self.keep, logits) else { return };
        let (slices, distances) = from_the_best(&left);
        let descending = |a: usize, b: usize| order(left.logits[b], left.logits[a]);
        let walk = walk(
            &left.probabilities(),
            |index| slices.outward(distances(index)),
            descending,
            |kept| (kept as f32) < self.p as f32,
        );
        left.remove_but(self.keep, walk.rest(), descending, logits);
    }
}

/// Each survivor's distance from the best one, and slices for them.
fn from_the_best(left: &Survivors) -> (Slices, impl Fn(usize) -> f32) {
    let highest = highest(&left.logits);
    let lowest = left.logits.iter().copied().fold(highest, f32::min);
    (Slices::up_to(highest - lowest), move |index: usize| highest - left.logits[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{START, kept, processed, six};
    use crate::softmax::softmax;
    use itertools::Itertools;

    fn top_p(p: f64) -> TopP {
        TopP { p, keep: 1 }
    }

    /// 0.40 + 0.30 + 0.20 = 0.90: the three make up the nucleus at 0.9, and renormalised they are 4/9, 3/9, 2/9.
    #[test]
    fn the_nucleus_worked_by_hand() {
        assert_eq!(kept(&top_p(0.9), &six()), [0, 1, 2]);
        assert_eq!(kept(&top_p(0.91), &six()), [0, 1, 2, 3]);
        assert_eq!(kept(&top_p(0.41), &six()), [0, 1]);
        assert_eq!(kept(&top_p(0.39), &six()), [0]);
        assert_eq!(kept(&top_p(1e-6), &six()), [0]);
        assert_eq!(kept(&TopP { p: 0.39, keep: 3 }, &six()), [0, 1, 2]);
        let logits = processed(&top_p(0.9), &START, &six());
        for (p, expected) in softmax(&logits).iter().zip_eq([4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0, 0.0, 0.0]) {
            assert!((p - expected).abs() < 1e-6, "{p} is not {expected}");
        }
    }

    #[test]
    fn from_the_top_it_is_the_same_nucleus() {
        for p in [0.39, 0.41, 0.85, 0.91, 0.96, 1e-6] {
            assert_eq!(kept(&TopPFromTheTop { p, keep: 1 }, &six()), kept(&top_p(p), &six()), "p = {p}");
        }
        assert_eq!(kept(&TopPFromTheTop { p: 0.39, keep: 3 }, &six()), [0, 1, 2]);
    }

    /// At 0.5 two of four quarters stay: seen from below the lower ids go first, seen from the top they come first.
    #[test]
    fn among_ties_the_lower_ids_go_or_come_first() {
        assert_eq!(kept(&top_p(0.5), &[1.0; 4]), [2, 3]);
        assert_eq!(kept(&top_p(0.1), &[1.0; 4]), [3]);
        assert_eq!(kept(&TopP { p: 0.1, keep: 2 }, &[1.0; 4]), [2, 3]);
        assert_eq!(kept(&top_p(0.9), &[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 1.0]), [1, 3]);
        assert_eq!(kept(&TopPFromTheTop { p: 0.5, keep: 1 }, &[1.0; 4]), [0, 1]);
        assert_eq!(kept(&TopPFromTheTop { p: 0.1, keep: 1 }, &[1.0; 4]), [0]);
    }
}
