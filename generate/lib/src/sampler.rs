//! Choosing the next token: the best one, or a seeded draw from the processed distribution.

use ember_data::random::rng;
use rand::Rng;

use crate::softmax::{highest, softmax, sum};

/// The id of the highest logit; ties go to the lowest id, as in torch's argmax on the CPU.
pub fn greedy(logits: &[f32]) -> u32 {
    let highest = highest(logits);
    logits.iter().position(|&logit| logit == highest).unwrap_or_default() as u32
}

/// A drawn token, with the random number that selected it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// The token's id.
    pub id: u32,
    /// The random number, in [0, 1).
    pub uniform: f64,
    /// The token's share of the unit interval, in which the number lies.
    pub interval: (f64, f64),
}

/// Draws a token from the softmax of `logits` `[vocab]`.
///
/// A draw depends only on the logits and (seed, sequence, step). So it is the same whether a
/// sequence is generated alone or in a batch, and whatever was drawn before.
pub fn draw(seed: u64, sequence: u64, step: u64, logits: &[f32]) -> Drawn {
    weighted(uniform(seed, &[sequence, step]), &softmax(logits))
}

/// The uniform number in [0, 1) for a place (for example sequence and step). It takes the 53 high
/// bits, so every multiple of 2^-53 is equally likely.
pub(crate) fn uniform(seed: u64, place: &[u64]) -> f64 {
    (rng(seed, place).next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Every token's share of the unit interval, `[vocab]`: consecutive intervals in id order, as wide
/// as the probabilities of the softmax of `logits` `[vocab]`. A draw falls into one of them.
pub fn shares(logits: &[f32]) -> Vec<(f64, f64)> {
    let weights = softmax(logits);
    let total = sum(&weights);
    let mut below = 0.0;
    let share = |&weight: &f32| {
        let begin = below;
        below += f64::from(weight);
        (begin / total, below / total)
    };
    weights.iter().map(share).collect()
}

/// Picks the token into whose share of the unit interval `uniform` falls. The shares are in id
/// order and proportional to `weights` `[vocab]`, which need not sum to 1.
pub(crate) fn weighted(uniform: f64, weights: &[f32]) -> Drawn {
    let total = sum(weights);
    let wanted = uniform * total;
    let (mut below, mut drawn) = (0.0, Drawn { id: 0, uniform, interval: (0.0, 1.0) });
    for (id, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            let end = below + f64::from(weight);
            drawn = Drawn { id: id as u32, uniform, interval: (below / total, end / total) };
            if wanted < end {
                break;
            }
            below = end;
        }
    }
    drawn // the last token with a weight, if rounding left `wanted` beyond its end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::processors::*;
    use itertools::Itertools;
    use std::sync::Arc;

    const DRAWS: usize = 100_000;

    #[test]
    fn greedy_takes_the_lowest_id_among_ties() {
        assert_eq!(greedy(&[0.0, 2.0, 2.0, 1.0]), 1);
        assert_eq!(greedy(&[f32::NEG_INFINITY, f32::NEG_INFINITY, -3.0]), 2);
        assert_eq!(greedy(&[-0.0, 0.0]), 0);
    }

    #[test]
    fn shares_of_the_unit_interval() {
        let logits: Vec<f32> = [0.5_f32, 0.0, 0.25, 0.25].iter().map(|p| p.ln()).collect();
        for (uniform, id) in [(0.0, 0), (0.499, 0), (0.501, 2), (0.749, 2), (0.751, 3), (0.999_999_999, 3)] {
            assert_eq!(weighted(uniform, &softmax(&logits)).id, id, "at {uniform}");
        }
    }

    #[test]
    fn a_draw_falls_into_the_share_that_is_told() {
        let logits: Vec<f32> =
            (0..300).map(|id| if id % 3 == 0 { f32::NEG_INFINITY } else { (id % 7) as f32 }).collect();
        let shares = shares(&logits);
        for step in 0..100 {
            let Drawn { id, uniform, interval } = draw(4, 0, step, &logits);
            assert_eq!(shares[id as usize], interval);
            assert!(interval.0 <= uniform && uniform < interval.1);
        }
        assert!(shares[0].0 == shares[0].1 && (shares[299].1 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_draw_depends_on_seed_sequence_and_step_alone() {
        let logits = [0.0_f32; 1000];
        let draw = |seed, sequence, step| draw(seed, sequence, step, &logits).id;
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        let all = [draw(1, 2, 3), draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4), draw(1, 3, 2)];
        assert!(all.iter().all_unique(), "{all:?}");
    }

    /// Pearson's statistic of 100,000 draws against `expected`, and its degrees of freedom;
    /// infinite if an impossible token was drawn.
    fn chi_square(chain: Chain, logits: &[f32], expected: &[f64]) -> (f64, usize) {
        let mut counts = vec![0.0_f64; logits.len()];
        for sequence in 0..DRAWS {
            let mut processed = logits.to_vec();
            chain.process(&TEXT, &mut processed);
            let id = draw(7, sequence as u64, 0, &processed).id;
            counts[id as usize] += 1.0;
        }
        let possible = expected.iter().filter(|&&p| p > 0.0).count();
        let mut statistic = 0.0;
        for (count, p) in counts.iter().zip(expected) {
            if *p > 0.0 {
                statistic += (count - p * DRAWS as f64).powi(2) / (p * DRAWS as f64);
            } else if *count > 0.0 {
                statistic = f64::INFINITY;
            }
        }
        (statistic, possible - 1)
    }

    /// Whether the statistic is plausible: a correct sampler exceeds the limit for one seed in
    /// about a hundred thousand (4.3 standard deviations, by the Wilson-Hilferty approximation of
    /// the chi-square distribution).
    fn passes((statistic, degrees): (f64, usize)) -> bool {
        let k = degrees as f64;
        let bound = k * (1.0 - 2.0 / (9.0 * k) + 4.3 * (2.0 / (9.0 * k)).sqrt()).powi(3);
        statistic < bound
    }

    /// The history: 1 3 5 0, then 1 1 3.
    const TEXT: Step = Step { prompt: &[1, 3, 5, 0], generated: &[1, 1, 3] };

    /// The probabilities of common tutorials, 0.40, 0.30, 0.20, 0.05, 0.03, 0.02, shuffled.
    const SHUFFLED: [f64; 6] = [0.05, 0.40, 0.02, 0.30, 0.03, 0.20];

    /// Their logits, shifted so that those of 0.40, 0.30 and 0.20 are positive and the others
    /// negative.
    fn logits() -> [f32; 6] {
        SHUFFLED.map(|p| (p.ln() + 2.0) as f32)
    }

    fn normalised(weights: [f64; 6]) -> Vec<f64> {
        let total: f64 = weights.iter().sum();
        weights.iter().map(|w| w / total).collect()
    }

    /// Draws through `right` follow `weights`, normalised; draws through `broken`, which is nearly
    /// the same, do not.
    fn check(right: impl LogitsProcessor + 'static, weights: [f64; 6], broken: impl LogitsProcessor + 'static) {
        let name = right.name();
        let expected = normalised(weights);
        let result = chi_square(Chain::of(vec![Arc::new(right)]), &logits(), &expected);
        assert!(passes(result), "{name}: {result:?}");
        let result = chi_square(Chain::of(vec![Arc::new(broken)]), &logits(), &expected);
        assert!(!passes(result), "a broken {name} passes: {result:?}");
    }

    #[test]
    fn draws_without_a_processor_follow_the_softmax() {
        assert!(passes(chi_square(Chain::default(), &logits(), &normalised(SHUFFLED))));
        let off_by_five_percent = vec![Arc::new(temperature(1.05)) as Arc<dyn LogitsProcessor>];
        assert!(!passes(chi_square(Chain::of(off_by_five_percent), &logits(), &normalised(SHUFFLED))));
    }

    #[test]
    fn draws_follow_each_bias_and_penalty_exactly() {
        let with = |edits: &[(usize, f64)]| {
            let mut weights = SHUFFLED;
            for &(id, factor) in edits {
                weights[id] *= factor;
            }
            weights
        };
        check(
            logit_bias(&[(vec![0], f32::ln(3.0)), (vec![1, 3, 2], f32::ln(4.0)), (vec![5, 2], f32::ln(2.0))]),
            with(&[(0, 3.0), (2, 4.0)]),
            logit_bias(&[(vec![0], f32::ln(3.0)), (vec![2], f32::ln(8.0))]), // whatever the history
        );
        // 0 is in the history with a negative logit; 1, 3 and 5 have positive ones.
        let penalised = |id: usize| match (SHUFFLED[id].ln() + 2.0, [0, 1, 3, 5].contains(&id)) {
            (logit, false) => logit.exp(),
            (logit, true) if logit < 0.0 => (logit * 1.5).exp(),
            (logit, true) => (logit / 1.5).exp(),
        };
        check(repetition_penalty(1.5, History::All), [0, 1, 2, 3, 4, 5].map(penalised), AlwaysDivides(1.5));
        check(
            presence_penalty(0.7, History::Generated),
            with(&[(1, (-0.7_f64).exp()), (3, (-0.7_f64).exp())]),
            presence_penalty(0.7, History::All), // would count the prompt
        );
        check(
            frequency_penalty(0.4, History::Generated),
            with(&[(1, (-0.8_f64).exp()), (3, (-0.4_f64).exp())]),
            presence_penalty(0.4, History::Generated), // would count each token once
        );
        check(no_repeat_ngram(2), with(&[(5, 0.0)]), no_repeat_ngram(4));
        check(
            bad_words(&[vec![3, 1], vec![5, 0], vec![2]], &[2]),
            with(&[(1, 0.0)]),
            bad_words(&[vec![3, 1], vec![5, 0], vec![2]], &[]), // would allow nothing to end
        );
        let ends = |count| min_new_tokens(count, vec![3]);
        check(ends(4), with(&[(3, 0.0)]), ends(3));
        check(suppress(vec![2, 4]), with(&[(2, 0.0), (4, 0.0)]), suppress(vec![2]));
    }

    /// The paper's repetition penalty, which raises negative logits.
    struct AlwaysDivides(f32);

    impl LogitsProcessor for AlwaysDivides {
        fn name(&self) -> &'static str {
            "repetition-penalty"
        }

        fn process(&self, _: &Step, logits: &mut [f32]) {
            for id in [0, 1, 3, 5] {
                logits[id] /= self.0;
            }
        }
    }

    #[test]
    fn draws_follow_each_sampling_knob_exactly() {
        let without = |below: f64| SHUFFLED.map(|p| if p < below { 0.0 } else { p });
        let (best_three, best_four, all_but_the_worst) = (without(0.2), without(0.05), without(0.03));
        check(temperature(2.0), SHUFFLED.map(f64::sqrt), temperature(2.2)); // p^(1/T)
        check(top_k(4), best_four, top_k(3));
        check(top_k_exactly(4), best_four, top_k_exactly(5));
        let top_p = |p| top_p(p, 1);
        check(top_p(0.9), best_three, top_p(0.92)); // one too many
        check(top_p(0.9), best_three, top_p(0.69)); // one too few
        let from_the_top = |p| top_p_from_the_top(p, 1);
        check(from_the_top(0.89), best_three, from_the_top(0.91));
        let min_p = |share| min_p(share, 1);
        check(min_p(0.1), best_four, min_p(0.06));
        // The entropy is 1.383 nats; the closest surprisals are those of 0.3, then 0.2, then 0.4.
        let typical = [0.0, 0.0, 0.0, 0.30, 0.0, 0.20];
        check(typical_p(0.45, 1), typical, top_p(0.45)); // takes the best ones instead
        check(typical_p_exactly(0.45, 1), typical, typical_p_exactly(0.55, 1));
        let epsilon = |epsilon| epsilon_cutoff(epsilon, 1);
        check(epsilon(0.025), all_but_the_worst, epsilon(0.035));
        // eta = min(0.25, 0.5 e^-1.383) = 0.125
        check(eta_cutoff(0.25, 1), best_three, epsilon(0.25)); // ignores the entropy
    }
}
