//! What may follow each beam: log-probabilities, processors, and the few best tokens of many, or a draw of them.

use anyhow::{Result, ensure};
use rand::Rng;
use rayon::prelude::*;

use crate::processors::{Chain, Step};
use crate::softmax::log_sum_exp;

/// From so many logits on, dealing rows to threads costs less than it saves.
const LOGITS_FOR_THREADS: usize = 1 << 15;

/// A beam, with the logits of what may follow it.
pub(super) struct Row<'a> {
    pub(super) step: Step<'a>,
    /// `[vocab]`
    pub(super) logits: &'a [f32],
    /// Tokens that earlier groups chose at this step, as often as they did.
    pub(super) taken: &'a [u32],
    /// Where the beam's draws happen: (sequence, step, beam).
    pub(super) place: [u64; 3],
}

/// The tokens of one row that may be worth going on with, and what else is known about the row.
pub(super) struct Followers {
    pub(super) best: Vec<Follower>,
    /// The most probable tokens under the unmodified model, best first.
    pub(super) top: Vec<(u32, f32)>,
}

/// A token that may follow.
pub(super) struct Follower {
    pub(super) token: u32,
    /// The processed log-probability.
    pub(super) logprob: f32,
    /// The log-probability under the unmodified model.
    pub(super) model_logprob: f32,
    /// What it is ranked by: the processed log-probability, and its noise when it is drawn.
    pub(super) key: f32,
}

/// How rows are scored; the same for all rows of a search.
pub(super) struct Scorer {
    /// The processors up to the logit bias; the diversity penalty follows them, as in transformers.
    pub(super) bias: Chain,
    /// The processors behind it.
    pub(super) chain: Chain,
    pub(super) diversity_penalty: f32,
    /// How many tokens to find for each row.
    pub(super) followers: usize,
    /// How many of the most probable tokens to report.
    pub(super) top: usize,
    /// The seed of the draws; `None` ranks without drawing.
    pub(super) draws: Option<u64>,
}

impl Scorer {
    /// The followers of every row.
    ///
    /// # Errors
    /// When logits are not finite.
    pub(super) fn score(&self, rows: &[Row]) -> Result<Vec<Followers>> {
        if rows.iter().map(|row| row.logits.len()).sum::<usize>() < LOGITS_FOR_THREADS {
            rows.iter().map(|row| self.score_row(row)).collect()
        } else {
            rows.par_iter().map(|row| self.score_row(row)).collect()
        }
    }

    fn score_row(&self, row: &Row) -> Result<Followers> {
        let norm = log_sum_exp(row.logits);
        ensure!(
            norm.is_finite(),
            "the model's logits are not finite numbers: its weights are damaged, or its training diverged; use another checkpoint"
        );
        let model_logprob = |logit: &f32| (f64::from(*logit) - norm) as f32;
        let mut logprobs: Vec<f32> = row.logits.iter().map(model_logprob).collect();
        self.bias.process(&row.step, &mut logprobs);
        for &token in row.taken {
            logprobs[token as usize] -= self.diversity_penalty;
        }
        self.chain.process(&row.step, &mut logprobs);
        let noisy = self.draws.map(|seed| with_gumbel_noise(&logprobs, &mut ember_data::random::rng(seed, &row.place)));
        let keys = noisy.as_deref().unwrap_or(&logprobs);
        let follower = |token: u32| {
            let id = token as usize;
            Follower { token, logprob: logprobs[id], model_logprob: model_logprob(&row.logits[id]), key: keys[id] }
        };
        let best = highest(keys, self.followers).into_iter().map(follower).collect();
        let top = highest(row.logits, self.top);
        let top = top.into_iter().map(|token| (token, model_logprob(&row.logits[token as usize]))).collect();
        Ok(Followers { best, top })
    }
}

/// Each possible token's log-probability and a draw from Gumbel's distribution.
///
/// Ranked by that, the first n are n draws without replacement from the softmax, in the order in which they would be drawn
/// ([Kool, van Hoof and Welling 2019, section 2.3](https://arxiv.org/abs/1903.06059)): what torch.multinomial does, without
/// renormalising after each draw. A constant added to all of a beam's log-probabilities may be added to the sums instead.
pub(super) fn with_gumbel_noise(logprobs: &[f32], rng: &mut impl Rng) -> Vec<f32> {
    let noisy = |&logprob: &f32| match logprob {
        f32::NEG_INFINITY => logprob,
        _ => (f64::from(logprob) + gumbel(rng.next_u64())) as f32,
    };
    logprobs.iter().map(noisy).collect()
}

/// A number with Gumbel's distribution, by inversion at the middle of one of 2^53 equal parts of the unit interval.
fn gumbel(bits: u64) -> f64 {
    let uniform = ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -(-uniform.ln()).ln()
}

/// The ids of the `count` highest values, highest first, of equal ones the lower id; minus infinity is never among them.
///
/// Of many values few are ever among the best so far, so most are dismissed a block at a time.
pub(super) fn highest(values: &[f32], count: usize) -> Vec<u32> {
    const BLOCK: usize = 64;
    let mut best: Vec<(f32, u32)> = Vec::with_capacity(count + 1);
    if count == 0 {
        return Vec::new();
    }
    let mut bar = f32::NEG_INFINITY;
    for (block, values) in values.chunks(BLOCK).enumerate() {
        // No early exit: so the comparisons of a block run side by side.
        if !values.iter().fold(false, |any, &value| any | (value > bar)) {
            continue;
        }
        for (id, &value) in (block * BLOCK..).zip(values) {
            if value > bar {
                let place = best.partition_point(|&(other, _)| other >= value);
                best.insert(place, (value, id as u32));
                best.truncate(count);
                if best.len() == count {
                    bar = best[count - 1].0;
                }
            }
        }
    }
    best.into_iter().map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};

    #[test]
    fn the_highest_by_hand() {
        assert_eq!(highest(&[1.0, 3.0, 3.0, 2.0], 3), [1, 2, 3]);
        assert_eq!(highest(&[1.0, f32::NEG_INFINITY], 9), [0]);
        assert!(highest(&[1.0], 0).is_empty());
    }

    proptest! {
        #[test]
        fn the_highest_are_those_that_sorting_puts_first(
            // Coarse steps, so that ties are common.
            values in prop::collection::vec((-9_i8..9).prop_map(f32::from), 0..300),
            count in 0..40_usize,
        ) {
            let mut order: Vec<u32> = (0..values.len() as u32).collect();
            order.sort_by(|&a, &b| values[b as usize].total_cmp(&values[a as usize]));
            order.truncate(count);
            prop_assert_eq!(highest(&values, count), order);
        }
    }

    /// How often each ordered pair of tokens comes first and second, against `probability` of it; as Pearson's statistic.
    fn chi_square_of_pairs(logits: &[f32], probability: impl Fn(usize, usize) -> f64) -> f64 {
        const DRAWS: usize = 100_000;
        let mut counts = vec![vec![0.0_f64; logits.len()]; logits.len()];
        for draw in 0..DRAWS {
            let noisy = with_gumbel_noise(logits, &mut ember_data::random::rng(3, &[draw as u64]));
            let pair = highest(&noisy, 2);
            counts[pair[0] as usize][pair[1] as usize] += 1.0;
        }
        let mut statistic = 0.0;
        for (first, counts) in counts.iter().enumerate() {
            for (second, count) in counts.iter().enumerate().filter(|&(second, _)| second != first) {
                let expected = probability(first, second) * DRAWS as f64;
                statistic += (count - expected).powi(2) / expected;
            }
        }
        statistic
    }

    /// torch.multinomial without replacement: the first token by its probability, the second by its share of what is left.
    #[test]
    fn two_draws_without_replacement_follow_their_exact_distribution() {
        let p = [0.5_f64, 0.25, 0.15, 0.1];
        // Unnormalised, as accumulated scores are.
        let logits = p.map(|p| (p.ln() - 7.0) as f32);
        // 11 degrees of freedom: a right sampler exceeds 43 once in a hundred thousand seeds.
        let statistic = chi_square_of_pairs(&logits, |first, second| p[first] * p[second] / (1.0 - p[first]));
        assert!(statistic < 43.0, "{statistic}");
        // The test can fail: drawing both at once, with pairs of equal tokens refused, is another distribution.
        let refused: f64 = p.iter().map(|p| p * p).sum();
        let statistic = chi_square_of_pairs(&logits, |first, second| p[first] * p[second] / (1.0 - refused));
        assert!(statistic > 43.0, "{statistic}");
    }
}
