//! Choosing the next token of every row: the processors, then the best one or a draw.

use anyhow::{Result, ensure};

use super::{ChosenToken, GenerationConfig, Row, Step, Strategy};
use crate::processors::Chain;
use crate::sampler::{Drawn, draw, greedy};
use crate::sequences::Sequences;
use crate::softmax::log_sum_exp;
use crate::trace::{ChoiceTrace, Recorder};
use rayon::prelude::*;

/// Below this many logits in all, choosing is done on one thread: waking the others costs more.
const WORTH_SHARING: usize = 1 << 14;

/// Chooses by one configuration.
pub(super) struct Chooser {
    chain: Chain,
    /// The seed of the draws; none for greedy.
    seed: Option<u64>,
    /// How many of the best tokens to report.
    top: usize,
    /// How many candidates to give account of.
    traced: usize,
}

/// What was chosen for one row.
pub(super) struct Choice {
    pub(super) token: ChosenToken,
    pub(super) trace: Option<ChoiceTrace>,
}

impl Chooser {
    pub(super) fn new(config: &GenerationConfig, chain: Chain, traced: usize) -> Self {
        let seed = (config.strategy == Strategy::Sample).then_some(config.seed);
        Self { chain, seed, top: config.logprobs, traced }
    }

    /// A token for every row of `sequences`, whose logits `[rows, vocab]` it edits; `live` are the rows' numbers.
    pub(super) fn choose_all(
        &self,
        sequences: &dyn Sequences,
        live: &[usize],
        rows: &[Row],
        logits: &mut [f32],
    ) -> Result<Vec<Choice>> {
        let vocab_size = sequences.vocab_size();
        let steps = live.iter().enumerate().map(|(place, &number)| {
            let (prompt, generated) = sequences.ids(place).split_at(rows[number].prompt_len);
            (Step { prompt, generated }, rows[number].sequence)
        });
        let steps: Vec<(Step, u64)> = steps.collect();
        let at_once = if logits.len() < WORTH_SHARING { usize::MAX } else { 1 };
        let rows = steps.par_iter().with_min_len(at_once).zip(logits.par_chunks_mut(vocab_size));
        rows.map(|((step, sequence), logits)| self.choose(step, *sequence, logits)).collect()
    }

    /// The next token for this step of the given sequence.
    pub(super) fn choose(&self, step: &Step, sequence: u64, logits: &mut [f32]) -> Result<Choice> {
        let norm = log_sum_exp(logits);
        ensure!(
            norm.is_finite(),
            "the model's logits are not finite numbers: its weights are damaged, or its training diverged; use another checkpoint"
        );
        let logprob_of = |logit: f32| (f64::from(logit) - norm) as f32;
        let top = best(self.top, logits).into_iter().map(|id| (id, logprob_of(logits[id as usize]))).collect();
        // The chain edits in place; without one there is nothing to keep.
        let unmodified = if self.chain.is_empty() { Vec::new() } else { logits.to_vec() };
        let mut recorder = (self.traced > 0).then(|| Recorder::new(logits));
        match &mut recorder {
            None => self.chain.process(step, logits),
            Some(recorder) => {
                self.chain.process_observed(step, logits, &mut |name, logits| recorder.after(name, logits))
            }
        }
        let (id, drawn) = match self.seed {
            None => (greedy(logits), None),
            Some(seed) => {
                let drawn = draw(seed, sequence, step.generated.len() as u64, logits);
                (drawn.id, Some(drawn))
            }
        };
        ensure!(
            logits[id as usize] > f32::NEG_INFINITY,
            "no token is left to choose at step {}: together, {} rule out all of them; relax one",
            step.generated.len() + 1,
            self.chain.names().join(", ")
        );
        let model_logit = unmodified.get(id as usize).copied().unwrap_or(logits[id as usize]);
        let logprob = logprob_of(model_logit);
        let interval = |drawn: &Drawn| (drawn.uniform, drawn.interval);
        let trace = recorder.map(|recorder| {
            recorder.finish(step.generated.len(), id, logprob, drawn.as_ref().map(interval), self.traced)
        });
        Ok(Choice { token: ChosenToken { id, logprob, top }, trace })
    }
}

/// The ids of the `count` highest logits, highest first, of equal ones the lower id.
pub(crate) fn best(count: usize, logits: &[f32]) -> Vec<u32> {
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
