//! Top-p and typical-p: the fewest tokens that make up a probability mass.

use std::cmp::Ordering;

use super::Processor;
use super::survivors::{Slices, Survivors, Walk, entropy, order, walk};
use crate::softmax::highest;

/// Keeps the nucleus: the most probable tokens up to and including the one that brings their sum to
/// p, in (0, 1] ([Holtzman et al. 2020, section 3.1](https://arxiv.org/abs/1904.09751);
/// transformers `TopPLogitsWarper`). At least `keep` tokens stay.
///
/// Computed from the other end, as in transformers: in ascending order, tokens are removed while
/// the removed probability, summed in float64 and rounded to float32, is at most 1 - p. Among equal
/// logits the lower ids are removed first.
pub fn top_p(p: f64, keep: usize) -> Processor {
    Processor::new("top-p", move |_, logits| {
        let Some(left) = Survivors::more_than(keep, logits) else { return };
        let limit = (1.0 - p) as f32;
        let (slices, distances) = from_the_best(&left);
        let walked = walk(
            &left.probabilities(),
            |index| slices.inward(distances(index)),
            |a, b| order(left.logits[a], left.logits[b]),
            |gone| gone as f32 <= limit,
        );
        let descending = |a: usize, b: usize| order(left.logits[b], left.logits[a]).then(b.cmp(&a));
        left.remove_keeping(keep, walked.passed, descending, logits);
    })
}

/// llama.cpp's top-p: keeps tokens in descending order until their sum, in float64, is at least p;
/// among equal logits the lower ids first. At least `keep` tokens stay.
///
/// It is [`top_p`] computed from the top. The two differ in which of several equal logits stay, and
/// in rounding if the sum is within a millionth of p.
pub fn top_p_from_the_top(p: f64, keep: usize) -> Processor {
    Processor::new("top-p", move |_, logits| {
        let Some(left) = Survivors::more_than(keep, logits) else { return };
        let (slices, distances) = from_the_best(&left);
        let descending = |a: usize, b: usize| order(left.logits[b], left.logits[a]);
        let walked = walk(
            &left.probabilities(),
            |index| slices.outward(distances(index)),
            descending,
            |kept| (kept as f32) < p as f32,
        );
        left.remove_keeping(keep, walked.rest(), descending, logits);
    })
}

/// The distance of each survivor's logit from the highest, and slices for these distances.
fn from_the_best(left: &Survivors) -> (Slices, impl Fn(usize) -> f32) {
    let highest = highest(&left.logits);
    let lowest = left.logits.iter().copied().fold(highest, f32::min);
    (Slices::up_to(highest - lowest), move |index: usize| highest - left.logits[index])
}

/// Keeps the tokens whose surprise, -log p, is nearest to the expected surprise, the entropy, until
/// their probability, summed in float64 and rounded to float32, reaches the mass, in (0, 1]. Tokens
/// that tie in distance with the last one stay, too ([Meister et al. 2023, section
/// 4](https://arxiv.org/abs/2202.00666); transformers `TypicalLogitsWarper`). At least `keep`
/// tokens stay.
pub fn typical_p(mass: f64, keep: usize) -> Processor {
    Processor::new("typical-p", move |_, logits| {
        let Some(left) = Survivors::more_than(keep, logits) else { return };
        let typical = Typical::of(&left);
        let Some(last) = typical.walk(|kept| (kept as f32) < mass as f32).stopped_at else { return };
        let furthest = typical.distances[last];
        let removed = typical.distances.iter().map(|&distance| distance > furthest).collect();
        left.remove_keeping(keep, removed, |a, b| typical.nearer(a, b), logits);
    })
}

/// llama.cpp's typical-p: keeps the tokens nearest to the expected surprise until their probability
/// exceeds the mass; ties go to the lower ids. At least `keep` tokens stay.
pub fn typical_p_exactly(mass: f64, keep: usize) -> Processor {
    Processor::new("typical-p", move |_, logits| {
        let Some(left) = Survivors::more_than(keep, logits) else { return };
        let typical = Typical::of(&left);
        let walked = typical.walk(|kept| kept as f32 <= mass as f32);
        left.remove_keeping(keep, walked.rest(), |a, b| typical.nearer(a, b), logits);
    })
}

/// The survivors' probabilities and distances from the expected surprise.
struct Typical {
    probabilities: Vec<f32>,
    /// Distance of each surprise from the expected one, in nats.
    distances: Vec<f32>,
}

impl Typical {
    fn of(left: &Survivors) -> Self {
        let probabilities = left.probabilities();
        let surprises = left.surprises(&probabilities);
        let expected = entropy(&probabilities, &surprises);
        Self { probabilities, distances: surprises.iter().map(|surprise| (surprise - expected).abs()).collect() }
    }

    fn nearer(&self, a: usize, b: usize) -> Ordering {
        order(self.distances[a], self.distances[b])
    }

    fn walk(&self, fits: impl Fn(f64) -> bool) -> Walk {
        let slices = Slices::up_to(highest(&self.distances));
        walk(&self.probabilities, |index| slices.outward(self.distances[index]), |a, b| self.nearer(a, b), fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{START, kept, processed, six};
    use crate::softmax::softmax;
    use itertools::Itertools;

    /// 0.40 + 0.30 + 0.20 = 0.90: these three are the nucleus at 0.9, renormalised to 4/9, 3/9,
    /// 2/9.
    #[test]
    fn the_nucleus_worked_by_hand() {
        assert_eq!(kept(&top_p(0.9, 1), &six()), [0, 1, 2]);
        assert_eq!(kept(&top_p(0.91, 1), &six()), [0, 1, 2, 3]);
        assert_eq!(kept(&top_p(0.41, 1), &six()), [0, 1]);
        assert_eq!(kept(&top_p(0.39, 1), &six()), [0]);
        assert_eq!(kept(&top_p(1e-6, 1), &six()), [0]);
        assert_eq!(kept(&top_p(0.39, 3), &six()), [0, 1, 2]);
        let logits = processed(&top_p(0.9, 1), &START, &six());
        for (p, expected) in softmax(&logits).iter().zip_eq([4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0, 0.0, 0.0]) {
            assert!((p - expected).abs() < 1e-6, "{p} is not {expected}");
        }
    }

    #[test]
    fn from_the_top_it_is_the_same_nucleus() {
        for p in [0.39, 0.41, 0.85, 0.91, 0.96, 1e-6] {
            assert_eq!(kept(&top_p_from_the_top(p, 1), &six()), kept(&top_p(p, 1), &six()), "p = {p}");
        }
        assert_eq!(kept(&top_p_from_the_top(0.39, 3), &six()), [0, 1, 2]);
    }

    /// At 0.5 two of four equal quarters stay: removed from the bottom up, the lower ids go first;
    /// kept from the top down, they stay.
    #[test]
    fn among_ties_the_lower_ids_go_or_come_first() {
        assert_eq!(kept(&top_p(0.5, 1), &[1.0; 4]), [2, 3]);
        assert_eq!(kept(&top_p(0.1, 1), &[1.0; 4]), [3]);
        assert_eq!(kept(&top_p(0.1, 2), &[1.0; 4]), [2, 3]);
        assert_eq!(kept(&top_p(0.9, 1), &[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 1.0]), [1, 3]);
        assert_eq!(kept(&top_p_from_the_top(0.5, 1), &[1.0; 4]), [0, 1]);
        assert_eq!(kept(&top_p_from_the_top(0.1, 1), &[1.0; 4]), [0]);
    }

    /// The entropy of 0.40, 0.30, 0.20, 0.05, 0.03, 0.02 is 1.383 nats; the surprisals 0.916,
    /// 1.204, 1.609, 2.996, 3.507 and 3.912 differ from it by 0.467, 0.179, 0.226, 1.612, 2.123 and
    /// 2.529: the order is 1, 2, 0, 3, 4, 5.
    #[test]
    fn the_typical_tokens_worked_by_hand() {
        let typical = |mass| kept(&typical_p(mass, 1), &six());
        assert_eq!(typical(0.29), [1]);
        assert_eq!(typical(0.31), [1, 2]);
        assert_eq!(typical(0.51), [0, 1, 2]);
        assert_eq!(typical(0.89), [0, 1, 2]);
        assert_eq!(typical(0.91), [0, 1, 2, 3]);
        assert_eq!(kept(&typical_p(0.29, 2), &six()), [1, 2]);
        assert_eq!(kept(&typical_p_exactly(0.31, 1), &six()), [1, 2]);
    }

    /// If the first token's probability equals the mass, transformers stops there and llama.cpp
    /// takes one more.
    #[test]
    fn a_mass_met_exactly() {
        let mass = f64::from(softmax(&six())[1]);
        assert_eq!(kept(&typical_p(mass, 1), &six()), [1]);
        assert_eq!(kept(&typical_p_exactly(mass, 1), &six()), [1, 2]);
    }

    /// All tokens of a uniform distribution are equally typical: transformers keeps all, llama.cpp
    /// stops when the mass is exceeded.
    #[test]
    fn ties_stay_or_not() {
        assert_eq!(kept(&typical_p(0.5, 1), &[1.0; 4]), [0, 1, 2, 3]);
        assert_eq!(kept(&typical_p_exactly(0.5, 1), &[1.0; 4]), [0, 1, 2]);
        assert_eq!(kept(&typical_p_exactly(0.2, 2), &[1.0; 4]), [0, 1]);
    }
}
