//! Top-k: as many tokens as one says.

use super::survivors::kth_highest;
use super::{LogitsProcessor, Step};

/// Keeps the k highest logits and whatever ties with the k-th
/// ([Fan, Lewis and Dauphin 2018, section 5.4](https://arxiv.org/abs/1805.04833); transformers `TopKLogitsWarper`).
#[derive(Clone, Copy, Debug)]
pub struct TopK(
    /// How many to keep, at least 1.
    pub usize,
);

impl LogitsProcessor for TopK {
    fn name(&self) -> &'static str {
        "top-k"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        if self.0 >= logits.len() {
            return;
        }
        let kth = kth_highest(logits, self.0.max(1));
        for logit in logits {
            if *logit < kth {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

/// Keeps exactly the k highest logits, of equal ones those with the lower ids: llama.cpp's and MLX's top-k, which leave open
/// which of the equal ones stay.
#[derive(Clone, Copy, Debug)]
pub struct TopKExactly(
    /// How many to keep, at least 1.
    pub usize,
);

impl LogitsProcessor for TopKExactly {
    fn name(&self) -> &'static str {
        "top-k"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        if self.0 >= logits.len() {
            return;
        }
        let kth = kth_highest(logits, self.0.max(1));
        let above = logits.iter().filter(|&&logit| logit > kth).count();
        let mut left_for_ties = self.0.max(1) - above;
        for logit in logits {
            if *logit == kth && left_for_ties > 0 {
                left_for_ties -= 1;
            } else if *logit <= kth {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{START, kept, processed, six};
    use crate::softmax::softmax;
    use itertools::Itertools;

    /// The three best of 0.40, 0.30, 0.20, 0.05, 0.03, 0.02 share what the others had: 4/9, 3/9, 2/9.
    #[test]
    fn the_three_best_worked_by_hand() {
        let p = softmax(&processed(&TopK(3), &START, &six()));
        for (p, expected) in p.iter().zip_eq([4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0, 0.0, 0.0]) {
            assert!((p - expected).abs() < 1e-6, "{p} is not {expected}");
        }
    }

    #[test]
    fn top_k_keeps_the_best_and_those_tied_with_the_last() {
        let logits = [1.0, 3.0, 2.0, 2.0, 0.0];
        assert_eq!(kept(&TopK(1), &logits), [1]);
        assert_eq!(kept(&TopK(2), &logits), [1, 2, 3]);
        assert_eq!(kept(&TopK(3), &logits), [1, 2, 3]);
        assert_eq!(kept(&TopK(4), &logits), [0, 1, 2, 3]);
        assert_eq!(kept(&TopK(9), &logits), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn exactly_k_of_those_tied() {
        let logits = [2.0, 3.0, 2.0, f32::NEG_INFINITY, 2.0];
        for (k, ids) in
            [(1, vec![1]), (2, vec![0, 1]), (3, vec![0, 1, 2]), (4, vec![0, 1, 2, 4]), (5, vec![0, 1, 2, 4])]
        {
            assert_eq!(kept(&TopKExactly(k), &logits), ids, "the best {k}");
        }
    }
}
