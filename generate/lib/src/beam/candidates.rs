//! Candidate next tokens of each beam: processed log-probabilities, then the top k, or k draws.

use ember_data::random::rng;
use rand::Rng;
use rayon::prelude::*;

use crate::config::{GenerationConfig, Strategy};
use crate::logprobs::{finite_log_sum_exp, logprob};
use crate::processors::{Chain, Step};
use crate::trace::{BeamCandidate, Candidate, Fate, Recorder};
use crate::{error::Result, softmax};

/// From this many logits on, scoring rows in parallel saves more than it costs.
const LOGITS_FOR_THREADS: usize = 1 << 15;

/// A beam with the logits of its next token.
pub(super) struct Row<'a> {
    pub(super) step: Step<'a>,
    /// `[vocab]`
    pub(super) logits: &'a [f32],
    /// Tokens that earlier groups chose at this step, with repetitions.
    pub(super) taken: &'a [u32],
    /// The key of the beam's draws: (sequence, step, index in its group). The index is also the
    /// `parent` of its candidates.
    pub(super) place: [u64; 3],
    /// The sum of the beam's processed log-probabilities.
    pub(super) score: f64,
}

/// The best next tokens of one row, and what is reported about it.
pub(super) struct NextTokens {
    pub(super) best: Vec<BeamCandidate>,
    /// The most probable tokens under the unmodified model, best first.
    pub(super) top: Vec<(u32, f32)>,
    /// What the processors did to the traced tokens, if tracing is on.
    pub(super) traced: Vec<Candidate>,
}

/// Scores rows; the same settings for all rows of a search.
pub(super) struct Scorer<'a> {
    pub(super) config: &'a GenerationConfig,
    /// The processors up to the logit bias; the diversity penalty follows them, as in transformers.
    pub(super) bias: Chain,
    /// The processors after the diversity penalty.
    pub(super) chain: Chain,
    /// How many tokens to select for each row.
    pub(super) count: usize,
    /// How many candidates of each row to trace.
    pub(super) traced: usize,
}

impl Scorer<'_> {
    /// Selects the next tokens of every row.
    ///
    /// # Errors
    /// If logits are not finite.
    pub(super) fn score(&self, rows: &[Row]) -> Result<Vec<NextTokens>> {
        if rows.iter().map(|row| row.logits.len()).sum::<usize>() < LOGITS_FOR_THREADS {
            rows.iter().map(|row| self.score_row(row)).collect()
        } else {
            rows.par_iter().map(|row| self.score_row(row)).collect()
        }
    }

    fn score_row(&self, row: &Row) -> Result<NextTokens> {
        let log_sum_exp = finite_log_sum_exp(row.logits)?;
        let model_logprob = |logit: f32| logprob(logit, log_sum_exp);
        let mut logprobs: Vec<f32> = row.logits.iter().copied().map(model_logprob).collect();
        let mut recorder = (self.traced > 0).then(|| Recorder::new(&logprobs));
        self.process(row, &mut logprobs, &mut |name, now| {
            if let Some(recorder) = &mut recorder {
                recorder.after(name, now);
            }
        })?;
        let best = match self.config.strategy {
            Strategy::BeamSample => drawn(&logprobs, self.count, &mut rng(self.config.seed, &row.place)),
            _ => highest_few(&logprobs, self.count),
        };
        let candidate = |(token, key): (u32, f32)| BeamCandidate {
            parent: row.place[2] as usize,
            token,
            logprob: logprobs[token as usize],
            model_logprob: model_logprob(row.logits[token as usize]),
            score: row.score + f64::from(logprobs[token as usize]),
            rank_key: row.score + f64::from(key),
            fate: Fate::Pruned,
        };
        let best: Vec<BeamCandidate> = best.into_iter().map(candidate).collect();
        let ids: Vec<u32> = best.iter().map(|candidate| candidate.token).collect();
        let traced = recorder.map_or_else(Vec::new, |recorder| recorder.candidates(self.traced, &ids));
        let top = highest_few(row.logits, self.config.logprobs).into_iter();
        let top = top.map(|(id, logit)| (id, model_logprob(logit))).collect();
        Ok(NextTokens { best, top, traced })
    }

    /// Applies the processors to a row's log-probabilities; `record` sees them after each one.
    ///
    /// # Errors
    /// If the knobs take one out of float32's range.
    fn process(&self, row: &Row, logprobs: &mut [f32], record: &mut dyn FnMut(&'static str, &[f32])) -> Result<()> {
        self.bias.process_observed(&row.step, logprobs, record);
        for &token in row.taken {
            // An end token may lie outside the vocabulary: a checkpoint's settings are untrusted.
            if let Some(logprob) = logprobs.get_mut(token as usize) {
                *logprob -= self.config.diversity_penalty;
            }
        }
        record("diversity-penalty", logprobs);
        self.chain.process_observed(&row.step, logprobs, record);
        self.chain.checked_highest(logprobs)?;
        Ok(())
    }
}

/// Values are scanned in blocks: few are ever among the best so far, and a block without any is
/// skipped.
const BLOCK: usize = 64;

/// The `count` highest values with their ids, highest first; ties go to the lower id.
///
/// 0 and -0 tie, and minus infinity is never selected: both unlike in
/// [`top_k`](crate::logprobs::top_k).
pub(super) fn highest_few(values: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut best = Best::new(count);
    for (block, values) in values.chunks(BLOCK).enumerate() {
        // No early exit, so that the comparisons of a block are vectorised.
        if values.iter().fold(false, |any, &value| any | (value > best.bar)) {
            for (id, &value) in (block * BLOCK..).zip(values) {
                best.offer(id as u32, value);
            }
        }
    }
    best.kept
}

/// `count` draws without replacement from the softmax of `logprobs`, in the order of drawing. Each
/// comes with its noisy log-probability, by which the rows of several beams merge into one ranking.
///
/// This is the Gumbel top-k trick: with Gumbel noise added, the n highest values are distributed as
/// n successive draws without replacement ([Kool, van Hoof and Welling 2019, section
/// 2.3](https://arxiv.org/abs/1903.06059)), as torch.multinomial makes them. A token's noise
/// depends only on the generator and the token's id.
pub(super) fn drawn(logprobs: &[f32], count: usize, rng: &mut impl Rng) -> Vec<(u32, f32)> {
    let mut best = Best::new(count);
    for (block, logprobs) in logprobs.chunks(BLOCK).enumerate() {
        // Gumbel noise is -ln(-ln(1 - a)) for a uniform `a`. Since -ln(1 - a) >= a, a token can
        // pass the bar only if a < e^(logprob - bar). Most tokens fail that test, which needs no
        // logarithm.
        let most = f64::from(softmax::highest(logprobs) - best.bar).exp();
        for (id, &logprob) in (block * BLOCK..).zip(logprobs) {
            let a = uniform(rng);
            if a < most && logprob > f32::NEG_INFINITY {
                best.offer(id as u32, (f64::from(logprob) - (-(-a).ln_1p()).ln()) as f32);
            }
        }
    }
    best.kept
}

/// A uniform number: the middle of one of 2^53 equal parts of the unit interval, so never 0 or 1.
fn uniform(rng: &mut impl Rng) -> f64 {
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// The `count` best of the values offered so far.
struct Best {
    count: usize,
    /// Best first; ties go to the first offered.
    kept: Vec<(u32, f32)>,
    /// A new value has to exceed this.
    bar: f32,
}

impl Best {
    fn new(count: usize) -> Self {
        let bar = if count == 0 { f32::INFINITY } else { f32::NEG_INFINITY };
        Self { count, kept: Vec::with_capacity(count + 1), bar }
    }

    fn offer(&mut self, id: u32, value: f32) {
        if value > self.bar {
            let place = self.kept.partition_point(|&(_, other)| other >= value);
            self.kept.insert(place, (id, value));
            self.kept.truncate(self.count);
            if self.kept.len() == self.count {
                self.bar = self.kept[self.count - 1].1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};

    #[test]
    fn the_highest_by_hand() {
        assert_eq!(highest_few(&[1.0, 3.0, 3.0, 2.0], 3), [(1, 3.0), (2, 3.0), (3, 2.0)]);
        assert_eq!(highest_few(&[1.0, f32::NEG_INFINITY], 9), [(0, 1.0)]);
        assert!(highest_few(&[1.0], 0).is_empty());
    }

    proptest! {
        #[test]
        fn the_highest_are_those_that_sorting_puts_first(
            // Few distinct values, so that ties are common.
            values in prop::collection::vec((-9_i8..9).prop_map(f32::from), 0..300),
            count in 0..40_usize,
        ) {
            let order = by_sorting((0..).zip(values.iter().copied()).collect(), count);
            prop_assert_eq!(highest_few(&values, count), order);
        }

        /// Candidates skipped without drawing noise would not have been selected.
        #[test]
        fn the_drawn_are_those_whose_noisy_values_sorting_puts_first(
            spread in 0.1..20.0_f32,
            steps in prop::collection::vec(prop::option::weighted(0.9, 0.0..1.0_f32), 0..300),
            count in 0..40_usize,
            seed: u64,
        ) {
            let logprobs: Vec<f32> =
                steps.iter().map(|step| step.map_or(f32::NEG_INFINITY, |step| -step * spread)).collect();
            let mut rng = rng(seed, &[]);
            let noisy = |&logprob: &f32| (f64::from(logprob) - (-(-uniform(&mut rng)).ln_1p()).ln()) as f32;
            let mut noisy: Vec<(u32, f32)> = (0..).zip(logprobs.iter().map(noisy)).collect();
            noisy.retain(|&(_, key)| key > f32::NEG_INFINITY);
            prop_assert_eq!(drawn(&logprobs, count, &mut ember_data::random::rng(seed, &[])), by_sorting(noisy, count));
        }
    }

    fn by_sorting(mut values: Vec<(u32, f32)>, count: usize) -> Vec<(u32, f32)> {
        values.sort_by(|a, b| b.1.total_cmp(&a.1));
        values.truncate(count);
        values
    }

    /// Pearson's statistic of the counts of ordered (first, second) token pairs, against
    /// `probability` of each pair.
    fn chi_square_of_pairs(logits: &[f32], probability: impl Fn(usize, usize) -> f64) -> f64 {
        const DRAWS: usize = 100_000;
        let mut counts = vec![vec![0.0_f64; logits.len()]; logits.len()];
        for draw in 0..DRAWS {
            let pair = drawn(logits, 2, &mut rng(3, &[draw as u64]));
            counts[pair[0].0 as usize][pair[1].0 as usize] += 1.0;
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

    /// torch.multinomial without replacement: the first token by its probability, the second by its
    /// share of the remaining probability.
    #[test]
    fn two_draws_without_replacement_follow_their_exact_distribution() {
        let p = [0.5_f64, 0.25, 0.15, 0.1];
        // Unnormalised, like accumulated scores.
        let logits = p.map(|p| (p.ln() - 7.0) as f32);
        // 11 degrees of freedom: a correct sampler exceeds 43 for one seed in a hundred thousand.
        let statistic = chi_square_of_pairs(&logits, |first, second| p[first] * p[second] / (1.0 - p[first]));
        assert!(statistic < 43.0, "{statistic}");
        // The test can fail: drawing both independently and rejecting pairs of equal tokens is
        // another distribution.
        let refused: f64 = p.iter().map(|p| p * p).sum();
        let statistic = chi_square_of_pairs(&logits, |first, second| p[first] * p[second] / (1.0 - refused));
        assert!(statistic > 43.0, "{statistic}");
    }
}
