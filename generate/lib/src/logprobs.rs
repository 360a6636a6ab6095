//! Log-probabilities under the unmodified model, however a token was chosen.

use crate::error::{Error, Result};
use crate::{completion::ChosenToken, softmax::log_sum_exp};

/// Log-sum-exp of the logits `[vocab]`, which normalises them to log-probabilities.
///
/// # Errors
/// If the logits are not finite.
pub fn finite_log_sum_exp(logits: &[f32]) -> Result<f64> {
    finite(log_sum_exp(logits))
}

/// Checks a log-sum-exp that was computed elsewhere.
///
/// # Errors
/// If it is not finite, because the logits are not.
pub fn finite(log_sum_exp: f64) -> Result<f64> {
    if log_sum_exp.is_finite() { Ok(log_sum_exp) } else { Err(Error::NotFinite) }
}

/// The natural log-probability of a logit, clamped to at most 0 against rounding.
pub fn logprob(logit: f32, log_sum_exp: f64) -> f32 {
    ((f64::from(logit) - log_sum_exp) as f32).min(0.0)
}

/// Token `id` with its log-probability and the `top` best alternatives, from the unmodified logits
/// `[vocab]` of its step.
pub fn chosen(id: u32, logits: &[f32], log_sum_exp: f64, top: usize) -> ChosenToken {
    let logprob = |id: u32| logprob(logits[id as usize], log_sum_exp);
    ChosenToken { id, logprob: logprob(id), top: top_k(top, logits).into_iter().map(|id| (id, logprob(id))).collect() }
}

/// The ids of the `count` highest logits, highest first; ties go to the lower id.
///
/// 0 comes before -0, and minus infinity is selected where too few logits are higher. The two other
/// selections differ: in `highest_few`, for beams, and `kth_highest`, for the processors, 0 and -0
/// tie, and `highest_few` never selects minus infinity.
pub fn top_k(count: usize, logits: &[f32]) -> Vec<u32> {
    if count == 0 {
        return Vec::new();
    }
    let by_rank = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    if count < ids.len() {
        ids.select_nth_unstable_by(count - 1, by_rank);
        ids.truncate(count);
    }
    ids.sort_unstable_by(by_rank);
    ids
}

/// A token's rank in the order of [`top_k`], except that 0 and -0 tie; 1 is the best.
pub fn rank(id: u32, logits: &[f32]) -> usize {
    let (place, logit) = (id as usize, logits[id as usize]);
    let is_before = |&(other, &value): &(usize, &f32)| value > logit || (value == logit && other < place);
    1 + logits.iter().enumerate().filter(is_before).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_and_of_equals_the_lower_id() {
        assert_eq!(top_k(2, &[1.0, 3.0, 3.0, 2.0]), [1, 2]);
        assert_eq!(top_k(9, &[1.0, 3.0]), [1, 0]);
        assert!(top_k(0, &[1.0]).is_empty());
        assert_eq!([0, 1, 2, 3].map(|id| rank(id, &[1.0, 3.0, 3.0, 2.0])), [4, 1, 2, 3]);
    }
}
