//! Logits processors: small named steps that reshape the next token's distribution, applied in a fixed order.
//!
//! Each one edits the float32 logits of the last position on the host; a removed token's logit is minus infinity. The
//! meaning of each knob is that of Hugging Face transformers' processor of the same name, ties and boundary cases
//! included. The order is transformers' too: what changes scores by what was said before comes first (none yet), then
//! temperature, top-k, top-p.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::config::{GenerationConfig, Strategy};
use crate::softmax::{highest, softmax};

/// What a processor may look at beside the logits: the tokens so far.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The prompt's token ids.
    pub prompt: &'a [u32],
    /// The token ids generated so far; its length is the step's number.
    pub generated: &'a [u32],
}

/// One step of the chain between the model's logits and the draw.
pub trait LogitsProcessor: Send + Sync {
    /// The knob's name, as in `--top-k` without the dashes.
    fn name(&self) -> &'static str;

    /// Edits the logits of one position, `[vocab]`; finite or minus infinity in, the same out, with at least one finite.
    fn process(&self, step: &Step, logits: &mut [f32]);
}

/// Processors in the order in which they run.
#[derive(Clone, Default)]
pub struct Chain(Vec<Arc<dyn LogitsProcessor>>);

impl Chain {
    /// The processors that `config` switches on, and `constraint` in its place among them.
    pub fn new(config: &GenerationConfig, constraint: Option<Arc<dyn LogitsProcessor>>) -> Self {
        let mut chain: Vec<Arc<dyn LogitsProcessor>> = Vec::new();
        chain.extend(constraint);
        if matches!(config.strategy, Strategy::Sample | Strategy::BeamSample) {
            if config.temperature != 1.0 {
                chain.push(Arc::new(Temperature(config.temperature)));
            }
            if config.top_k > 0 {
                chain.push(Arc::new(TopK(config.top_k)));
            }
            if config.top_p < 1.0 {
                chain.push(Arc::new(TopP(config.top_p)));
            }
        }
        Self(chain)
    }

    /// A chain of the processors given.
    pub fn of(processors: Vec<Arc<dyn LogitsProcessor>>) -> Self {
        Self(processors)
    }

    /// The processors up to and with the one of this name, and those behind it; without one of this name, all are behind.
    pub fn split_behind(&self, name: &str) -> (Self, Self) {
        let behind = self.0.iter().position(|processor| processor.name() == name).map_or(0, |place| place + 1);
        (Self(self.0[..behind].to_vec()), Self(self.0[behind..].to_vec()))
    }

    /// Whether nothing is processed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The processors' names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|processor| processor.name()).collect()
    }

    /// Edits the logits of one position, `[vocab]`.
    pub fn process(&self, step: &Step, logits: &mut [f32]) {
        self.process_observed(step, logits, &mut |_, _| {});
    }

    /// As [`Self::process`], showing the logits to `observe` after each processor, with its name.
    pub fn process_observed(&self, step: &Step, logits: &mut [f32], observe: &mut dyn FnMut(&'static str, &[f32])) {
        for processor in &self.0 {
            processor.process(step, logits);
            observe(processor.name(), logits);
        }
    }
}

/// Divides the logits: below 1 sharpens the distribution, above 1 flattens it
/// ([Ackley, Hinton and Sejnowski 1985](https://doi.org/10.1207/s15516709cog0901_7); transformers `TemperatureLogitsWarper`).
#[derive(Clone, Copy, Debug)]
pub struct Temperature(
    /// The divisor, above 0.
    pub f32,
);

impl LogitsProcessor for Temperature {
    fn name(&self) -> &'static str {
        "temperature"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        for logit in logits {
            *logit /= self.0;
        }
    }
}

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
        let mut copy = logits.to_vec();
        let (_, kth, _) = copy.select_nth_unstable_by(self.0 - 1, |a, b| b.total_cmp(a));
        for logit in logits {
            if *logit < *kth {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

/// Keeps the nucleus: the most probable tokens up to and with the one that brings their sum to p
/// ([Holtzman et al. 2020, section 3.1](https://arxiv.org/abs/1904.09751); transformers `TopPLogitsWarper`).
///
/// Stated from the other end, as transformers computes it: in ascending order, tokens go while the probability that has
/// gone, summed in float64 and rounded to float32, is at most 1 - p. Among equal logits the lower ids go first. The most
/// probable token always stays.
#[derive(Clone, Copy, Debug)]
pub struct TopP(
    /// The nucleus's probability, in (0, 1].
    pub f64,
);

impl LogitsProcessor for TopP {
    fn name(&self) -> &'static str {
        "top-p"
    }

    /// Sorting 50,257 logits takes milliseconds, so only those near the edge of the nucleus are sorted: the vocabulary is
    /// dealt into narrow slices of logits, whole slices go while they fit, and the slice in which the sum crosses 1 - p is
    /// walked token by token.
    fn process(&self, _: &Step, logits: &mut [f32]) {
        const SLICES: usize = 2048;
        const MOST_NATS: f32 = 32.0; // what is so far below the best shares the last slice
        let limit = (1.0 - self.0) as f32;
        let highest = highest(logits);
        let lowest = logits.iter().copied().filter(|logit| logit.is_finite()).fold(highest, f32::min);
        let slices_per_nat = SLICES as f32 / (highest - lowest).clamp(1e-3, MOST_NATS);
        // Slice 0 holds the highest logit.
        let slice_of = |logit: f32| (((highest - logit) * slices_per_nat) as usize).min(SLICES - 1);

        let probabilities = softmax(logits);
        let mut mass = [0.0_f64; SLICES];
        for (&logit, &p) in logits.iter().zip(&probabilities) {
            mass[slice_of(logit)] += f64::from(p);
        }
        let mut gone = 0.0;
        let mut edge = SLICES - 1;
        while edge > 0 && (gone + mass[edge]) as f32 <= limit {
            gone += mass[edge];
            edge -= 1;
        }

        let mut at_the_edge = Vec::new();
        for (id, logit) in logits.iter_mut().enumerate() {
            let slice = slice_of(*logit);
            if slice > edge {
                *logit = f32::NEG_INFINITY;
            } else if slice == edge {
                at_the_edge.push((*logit, id));
            }
        }
        // Stable: equal logits, 0 and -0 among them, stay in the order of their ids.
        at_the_edge.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal));
        if edge == 0 {
            at_the_edge.pop(); // the most probable token of all
        }
        for (_, id) in at_the_edge {
            gone += f64::from(probabilities[id]);
            if gone as f32 > limit {
                break;
            }
            logits[id] = f32::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::Strategy;
    use proptest::prelude::{Strategy as _, prop, prop_assert, prop_assert_eq, proptest};

    const START: Step = Step { prompt: &[], generated: &[] };

    fn kept(processor: &dyn LogitsProcessor, logits: &[f32]) -> Vec<usize> {
        let mut processed = logits.to_vec();
        processor.process(&START, &mut processed);
        (0..logits.len()).filter(|&id| processed[id] > f32::NEG_INFINITY).collect()
    }

    /// The six probabilities of the example that tutorials work by hand.
    fn six() -> Vec<f32> {
        [0.40_f32, 0.30, 0.20, 0.05, 0.03, 0.02].iter().map(|p| p.ln()).collect()
    }

    #[test]
    fn temperature_divides() {
        let mut logits = [2.0, -1.0, f32::NEG_INFINITY];
        Temperature(0.5).process(&START, &mut logits);
        assert_eq!(logits, [4.0, -2.0, f32::NEG_INFINITY]);
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

    /// 0.40 + 0.30 + 0.20 = 0.90: the three make up the nucleus at 0.9, and renormalised they are 4/9, 3/9, 2/9.
    #[test]
    fn the_nucleus_worked_by_hand() {
        assert_eq!(kept(&TopP(0.9), &six()), [0, 1, 2]);
        assert_eq!(kept(&TopP(0.91), &six()), [0, 1, 2, 3]);
        assert_eq!(kept(&TopP(0.41), &six()), [0, 1]);
        assert_eq!(kept(&TopP(0.39), &six()), [0]);
        assert_eq!(kept(&TopP(1e-6), &six()), [0]);
        let mut logits = six();
        TopP(0.9).process(&START, &mut logits);
        for (p, expected) in softmax(&logits).iter().zip([4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0, 0.0, 0.0]) {
            assert!((p - expected).abs() < 1e-6, "{p} is not {expected}");
        }
    }

    /// Of equal logits the lower ids go first: at 0.5 two of four quarters go, and they are 0 and 1.
    #[test]
    fn among_ties_the_nucleus_keeps_the_higher_ids() {
        assert_eq!(kept(&TopP(0.5), &[1.0; 4]), [2, 3]);
        assert_eq!(kept(&TopP(0.1), &[1.0; 4]), [3]);
        assert_eq!(kept(&TopP(0.9), &[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 1.0]), [1, 3]);
    }

    #[test]
    fn the_chain_runs_in_order_and_only_when_sampling() {
        let names = |config: &GenerationConfig| Chain::new(config, None).names();
        let all = GenerationConfig {
            strategy: Strategy::Sample,
            temperature: 0.8,
            top_k: 5,
            top_p: 0.9,
            ..Default::default()
        };
        assert_eq!(names(&all), ["temperature", "top-k", "top-p"]);
        assert!(names(&GenerationConfig { strategy: Strategy::Greedy, ..all.clone() }).is_empty());
        assert!(names(&GenerationConfig { temperature: 1.0, top_k: 0, top_p: 1.0, ..all }).is_empty());
    }

    /// transformers' procedure word for word: sort everything, sum from the bottom, drop up to 1 - p.
    fn top_p_by_sorting_everything(p: f64, logits: &[f32]) -> Vec<usize> {
        let probabilities = softmax(logits);
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[a].partial_cmp(&logits[b]).unwrap());
        let mut cumulative = 0.0_f64;
        let mut kept = Vec::new();
        for (rank, &id) in order.iter().enumerate() {
            cumulative += f64::from(probabilities[id]);
            if cumulative as f32 > (1.0 - p) as f32 || rank + 1 == logits.len() {
                kept.push(id);
            }
        }
        kept.sort_unstable();
        kept
    }

    fn logits() -> impl proptest::prelude::Strategy<Value = Vec<f32>> {
        // Coarse steps, so that ties are common, and a spread from flat to one token certain.
        (1.0..2000.0_f32).prop_flat_map(|spread| {
            prop::collection::vec((-40_i8..40).prop_map(move |step| f32::from(step) * spread / 4000.0), 1..300)
        })
    }

    proptest! {
        #[test]
        fn slices_find_the_same_nucleus_as_sorting(logits in logits(), p in 0.001..1.0_f64) {
            prop_assert_eq!(kept(&TopP(p), &logits), top_p_by_sorting_everything(p, &logits));
        }

        #[test]
        fn top_k_keeps_at_least_k_and_nothing_below_what_it_drops(logits in logits(), k in 1..300_usize) {
            let kept = kept(&TopK(k), &logits);
            prop_assert!(kept.len() >= k.min(logits.len()));
            let least = kept.iter().map(|&id| logits[id]).fold(f32::INFINITY, f32::min);
            for (id, &logit) in logits.iter().enumerate() {
                prop_assert_eq!(kept.contains(&id), logit >= least);
            }
        }
    }
}
