//! Temperature, and the processors with one threshold for all tokens: top-k, min-p, epsilon and eta
//! cutoffs.

use super::Processor;
use super::survivors::{Survivors, entropy, kth_highest, order};
use crate::softmax::highest;

/// Divides the logits by the temperature, which is above 0. Below 1 it sharpens the distribution,
/// above 1 it flattens it ([Ackley, Hinton and Sejnowski
/// 1985](https://doi.org/10.1207/s15516709cog0901_7); transformers `TemperatureLogitsWarper`).
pub fn temperature(temperature: f32) -> Processor {
    Processor::new("temperature", move |_, logits| {
        for logit in logits {
            *logit /= temperature;
        }
    })
}

/// Keeps the k highest logits, k at least 1, and those that tie with the k-th ([Fan, Lewis and
/// Dauphin 2018, section 5.4](https://arxiv.org/abs/1805.04833); transformers `TopKLogitsWarper`).
pub fn top_k(k: usize) -> Processor {
    Processor::new("top-k", move |_, logits| {
        if k >= logits.len() {
            return;
        }
        let kth = kth_highest(logits, k.max(1));
        for logit in logits {
            if *logit < kth {
                *logit = f32::NEG_INFINITY;
            }
        }
    })
}

/// Keeps exactly the k highest logits, k at least 1, as llama.cpp's and MLX's top-k do. Ties go to
/// the lower ids; those programs leave open which of them stay.
pub fn top_k_exactly(k: usize) -> Processor {
    Processor::new("top-k", move |_, logits| {
        if k >= logits.len() {
            return;
        }
        let kth = kth_highest(logits, k.max(1));
        let above = logits.iter().filter(|&&logit| logit > kth).count();
        let mut left_for_ties = k.max(1) - above;
        for logit in logits {
            if *logit == kth && left_for_ties > 0 {
                left_for_ties -= 1;
            } else if *logit <= kth {
                *logit = f32::NEG_INFINITY;
            }
        }
    })
}

/// Removes tokens less probable than a share, in [0, 1], of the most probable token's probability,
/// but not the `keep` best ([Nguyen et al. 2024](https://arxiv.org/abs/2407.01082); transformers
/// `MinPLogitsWarper`).
pub fn min_p(share: f64, keep: usize) -> Processor {
    Processor::new("min-p", move |_, logits| {
        // A ratio of probabilities is a difference of logits: no softmax is needed.
        let furthest = -share.ln() as f32;
        let left = Survivors::of(logits);
        let best = highest(&left.logits);
        let removed = left.logits.iter().map(|logit| best - logit > furthest).collect();
        left.remove_keeping(keep, removed, |a, b| order(left.logits[b], left.logits[a]), logits);
    })
}

/// Removes tokens less probable than epsilon, in (0, 1), but not the `keep` best and those that tie
/// with the last of them ([Hewitt, Manning and Liang 2022, section
/// 4](https://arxiv.org/abs/2210.15191); transformers `EpsilonLogitsWarper`).
pub fn epsilon_cutoff(epsilon: f64, keep: usize) -> Processor {
    Processor::new("epsilon-cutoff", move |_, logits| {
        let left = Survivors::of(logits);
        let probabilities = left.probabilities();
        cut_off(&left, &probabilities, epsilon as f32, keep, logits);
    })
}

/// Removes tokens less probable than eta, the lower of epsilon and sqrt(epsilon) e^-H, where H is
/// the entropy in nats: the flatter the distribution, the more tokens stay ([Hewitt, Manning and
/// Liang 2022, section 4](https://arxiv.org/abs/2210.15191); transformers `EtaLogitsWarper`). The
/// `keep` best and those that tie with the last of them always stay.
pub fn eta_cutoff(epsilon: f64, keep: usize) -> Processor {
    Processor::new("eta-cutoff", move |_, logits| {
        let left = Survivors::of(logits);
        let probabilities = left.probabilities();
        let entropy = entropy(&probabilities, &left.surprises(&probabilities));
        let epsilon = epsilon as f32;
        cut_off(&left, &probabilities, epsilon.min(epsilon.sqrt() * (-entropy).exp()), keep, logits);
    })
}

/// Removes tokens less probable than `least`, but not the `keep` best and those that tie with the
/// last of them.
fn cut_off(left: &Survivors, probabilities: &[f32], least: f32, keep: usize, logits: &mut [f32]) {
    let protected = kth_highest(&left.logits, keep.max(1));
    let goes = |(&p, &logit): (&f32, &f32)| p < least && logit < protected;
    let removed: Vec<bool> = probabilities.iter().zip(&left.logits).map(goes).collect();
    left.remove(&removed, logits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{START, kept, processed, six};
    use crate::softmax::softmax;
    use itertools::Itertools;

    #[test]
    fn temperature_divides() {
        assert_eq!(
            processed(&temperature(0.5), &START, &[2.0, -1.0, f32::NEG_INFINITY]),
            [4.0, -2.0, f32::NEG_INFINITY]
        );
    }

    /// Logits 2, 1, 0 are odds of e^2 : e : 1. Temperature 0.5 squares the odds, 2 takes their
    /// square roots.
    #[test]
    fn odds_are_raised_to_the_power_of_one_over_the_temperature() {
        for (temperature, odds) in [(1.0, 1.0_f32.exp()), (0.5, 2.0_f32.exp()), (2.0, 0.5_f32.exp())] {
            let p = softmax(&processed(&super::temperature(temperature), &START, &[2.0, 1.0, 0.0]));
            assert!((p[0] / p[1] - odds).abs() < 1e-5 && (p[1] / p[2] - odds).abs() < 1e-5, "{temperature}: {p:?}");
        }
    }

    /// The three best of 0.40, 0.30, 0.20, 0.05, 0.03, 0.02 are renormalised to 4/9, 3/9, 2/9.
    #[test]
    fn the_three_best_worked_by_hand() {
        let p = softmax(&processed(&top_k(3), &START, &six()));
        for (p, expected) in p.iter().zip_eq([4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0, 0.0, 0.0]) {
            assert!((p - expected).abs() < 1e-6, "{p} is not {expected}");
        }
    }

    #[test]
    fn top_k_keeps_the_best_and_those_tied_with_the_last() {
        let logits = [1.0, 3.0, 2.0, 2.0, 0.0];
        assert_eq!(kept(&top_k(1), &logits), [1]);
        assert_eq!(kept(&top_k(2), &logits), [1, 2, 3]);
        assert_eq!(kept(&top_k(3), &logits), [1, 2, 3]);
        assert_eq!(kept(&top_k(4), &logits), [0, 1, 2, 3]);
        assert_eq!(kept(&top_k(9), &logits), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn exactly_k_of_those_tied() {
        let logits = [2.0, 3.0, 2.0, f32::NEG_INFINITY, 2.0];
        for (k, ids) in
            [(1, vec![1]), (2, vec![0, 1]), (3, vec![0, 1, 2]), (4, vec![0, 1, 2, 4]), (5, vec![0, 1, 2, 4])]
        {
            assert_eq!(kept(&top_k_exactly(k), &logits), ids, "the best {k}");
        }
    }

    #[test]
    fn min_p_worked_by_hand() {
        let min_p = |share| kept(&min_p(share, 1), &six());
        assert_eq!(min_p(0.0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(min_p(0.1), [0, 1, 2, 3]); // below 0.04 is removed
        assert_eq!(min_p(0.7), [0, 1]);
        assert_eq!(min_p(0.8), [0]);
        assert_eq!(kept(&super::min_p(0.8, 3), &six()), [0, 1, 2]);
        assert_eq!(kept(&super::min_p(1.0, 1), &[0.0, 2.0, 2.0]), [1, 2]);
    }

    #[test]
    fn epsilon_worked_by_hand() {
        let epsilon = |epsilon| kept(&epsilon_cutoff(epsilon, 1), &six());
        assert_eq!(epsilon(0.025), [0, 1, 2, 3, 4]);
        assert_eq!(epsilon(0.25), [0, 1]);
        assert_eq!(epsilon(0.5), [0]); // the best always stays
        assert_eq!(epsilon(f64::from(softmax(&six())[2])), [0, 1, 2]); // a probability equal to epsilon stays
        assert_eq!(kept(&epsilon_cutoff(0.5, 2), &six()), [0, 1]);
        assert_eq!(kept(&epsilon_cutoff(0.5, 2), &[0.0, 1.0, 0.0, -1.0]), [0, 1, 2]); // ties with the best stay, too
    }

    /// The entropy of the six is 1.383 nats, and e^-1.383 = 0.251: for 0.04, eta is min(0.04, 0.2 *
    /// 0.251) = 0.04, and for 0.25 it is min(0.25, 0.5 * 0.251) = 0.125.
    #[test]
    fn eta_worked_by_hand() {
        let eta = |epsilon| kept(&eta_cutoff(epsilon, 1), &six());
        assert_eq!(eta(0.04), [0, 1, 2, 3]);
        assert_eq!(eta(0.25), [0, 1, 2]);
        // A uniform distribution keeps all: 0.25 > sqrt(0.3) / 4. Epsilon alone would remove
        // tokens, but not ties with the best.
        assert_eq!(kept(&eta_cutoff(0.3, 1), &[1.0; 4]), [0, 1, 2, 3]);
        assert_eq!(kept(&epsilon_cutoff(0.3, 1), &[1.0, 1.0, 1.0, 1.0, 0.9]), [0, 1, 2, 3]);
    }
}
