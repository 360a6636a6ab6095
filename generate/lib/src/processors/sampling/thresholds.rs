//! Min-p, epsilon and eta cutoffs: whatever is improbable goes.

use super::survivors::{Survivors, entropy, kth_highest, order};
use super::{LogitsProcessor, Step};
use crate::softmax::highest;

/// Removes tokens less probable than a share of the most probable one
/// ([Nguyen et al. 2024](https://arxiv.org/abs/2407.01082); transformers `MinPLogitsWarper`).
#[derive(Clone, Copy, Debug)]
pub struct MinP {
    /// The share, in [0, 1].
    pub share: f64,
    /// The least number of tokens that stay, at least 1.
    pub keep: usize,
}

impl LogitsProcessor for MinP {
    fn name(&self) -> &'static str {
        "min-p"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        // Probabilities' ratios are logits' differences: no softmax is needed.
        let furthest = -self.share.ln() as f32;
        let left = Survivors::of(logits);
        let best = highest(&left.logits);
        let removed = left.logits.iter().map(|logit| best - logit > furthest).collect();
        left.remove_but(self.keep, removed, |a, b| order(left.logits[b], left.logits[a]), logits);
    }
}

/// Removes tokens less probable than epsilon
/// ([Hewitt, Manning and Liang 2022, section 4](https://arxiv.org/abs/2210.15191); transformers `EpsilonLogitsWarper`).
#[derive(Clone, Copy, Debug)]
pub struct EpsilonCutoff {
    /// The least probability, in (0, 1).
    pub epsilon: f64,
    /// The least number of tokens that stay, at least 1, with all that tie with the last of them.
    pub keep: usize,
}

impl LogitsProcessor for EpsilonCutoff {
    fn name(&self) -> &'static str {
        "epsilon-cutoff"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        let left = Survivors::of(logits);
        let probabilities = left.probabilities();
        cut_off(&left, &probabilities, self.epsilon as f32, self.keep, logits);
    }
}

/// Removes tokens less probable than eta, the lower of epsilon and sqrt(epsilon) e^-H, where H is the entropy in nats: the
/// flatter the distribution, the more may stay
/// ([Hewitt, Manning and Liang 2022, section 4](https://arxiv.org/abs/2210.15191); transformers `EtaLogitsWarper`).
#[derive(Clone, Copy, Debug)]
pub struct EtaCutoff {
    /// The highest that eta can be, in (0, 1).
    pub epsilon: f64,
    /// The least number of tokens that stay, at least 1, with all that tie with the last of them.
    pub keep: usize,
}

impl LogitsProcessor for EtaCutoff {
    fn name(&self) -> &'static str {
        "eta-cutoff"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        let left = Survivors::of(logits);
        let probabilities = left.probabilities();
        let entropy = entropy(&probabilities, &left.surprises(&probabilities));
        let epsilon = self.epsilon as f32;
        cut_off(&left, &probabilities, epsilon.min(epsilon.sqrt() * (-entropy).exp()), self.keep, logits);
    }
}

/// Removes what is less probable than `least`, but not the `keep` best and what ties with the last of them.
fn cut_off(left: &Survivors, probabilities: &[f32], least: f32, keep: usize, logits: &mut [f32]) {
    let protected = kth_highest(&left.logits, keep.max(1));
    let goes = |(&p, &logit): (&f32, &f32)| p < least && logit < protected;
    let removed: Vec<bool> = probabilities.iter().zip(&left.logits).map(goes).collect();
    left.remove(&removed, logits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{kept, six};
    use crate::softmax::softmax;

    #[test]
    fn min_p_worked_by_hand() {
        let min_p = |share| kept(&MinP { share, keep: 1 }, &six());
        assert_eq!(min_p(0.0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(min_p(0.1), [0, 1, 2, 3]); // below 0.04 goes
        assert_eq!(min_p(0.7), [0, 1]);
        assert_eq!(min_p(0.8), [0]);
        assert_eq!(kept(&MinP { share: 0.8, keep: 3 }, &six()), [0, 1, 2]);
        assert_eq!(kept(&MinP { share: 1.0, keep: 1 }, &[0.0, 2.0, 2.0]), [1, 2]);
    }

    #[test]
    fn epsilon_worked_by_hand() {
        let epsilon = |epsilon| kept(&EpsilonCutoff { epsilon, keep: 1 }, &six());
        assert_eq!(epsilon(0.025), [0, 1, 2, 3, 4]);
        assert_eq!(epsilon(0.25), [0, 1]);
        assert_eq!(epsilon(0.5), [0]); // the best stays
        assert_eq!(epsilon(f64::from(softmax(&six())[2])), [0, 1, 2]); // as does what equals epsilon
        assert_eq!(kept(&EpsilonCutoff { epsilon: 0.5, keep: 2 }, &six()), [0, 1]);
        assert_eq!(kept(&EpsilonCutoff { epsilon: 0.5, keep: 2 }, &[0.0, 1.0, 0.0, -1.0]), [0, 1, 2]); // and its ties
    }

    /// The entropy of the six is 1.383 nats, and e^-1.383 = 0.251: at 0.04 eta is min(0.04, 0.2 * 0.251) = 0.04, and at
    /// 0.25 it is min(0.25, 0.5 * 0.251) = 0.125.
    #[test]
    fn eta_worked_by_hand() {
        let eta = |epsilon| kept(&EtaCutoff { epsilon, keep: 1 }, &six());
        assert_eq!(eta(0.04), [0, 1, 2, 3]);
        assert_eq!(eta(0.25), [0, 1, 2]);
        // An even distribution keeps all: 0.25 > sqrt(0.3) / 4. Epsilon alone would cut, but not what ties with the best.
        assert_eq!(kept(&EtaCutoff { epsilon: 0.3, keep: 1 }, &[1.0; 4]), [0, 1, 2, 3]);
        assert_eq!(kept(&EpsilonCutoff { epsilon: 0.3, keep: 1 }, &[1.0, 1.0, 1.0, 1.0, 0.9]), [0, 1, 2, 3]);
    }
}
