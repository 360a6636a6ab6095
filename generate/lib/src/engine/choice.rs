//! Choosing the next token of every row: the processors, then the best one or a draw.

use rayon::prelude::*;

use super::{ChosenToken, GenerationConfig, Plan, Row, Strategy};
use crate::chosen::{chosen, norm};
use crate::error::Result;
use crate::processors::{Chain, Step};
use crate::sampler::{draw, greedy};
use crate::sequences::{Best, Sequences};
use crate::trace::{ChoiceTrace, Recorder};

/// Below this many logits in all, choosing is done on one thread: waking the others costs more.
const WORTH_SHARING: usize = 1 << 14;

/// Chooses by one plan.
pub(super) struct Chooser<'a> {
    config: &'a GenerationConfig,
    chain: Chain,
    traced_candidates: usize,
}

/// What the model says of the tokens after some rows.
pub(super) enum Next {
    /// The logits, `[rows, vocab]`.
    Logits(Vec<f32>),
    /// The best token of each, of which nothing else is wanted.
    Best(Vec<Best>),
}

impl Next {
    /// For new rows of which row i continues old row `parents[i]`.
    pub(super) fn select(self, parents: &[usize], vocab_size: usize) -> Self {
        match self {
            Self::Logits(read) => {
                let mut logits = Vec::with_capacity(parents.len() * vocab_size);
                parents.iter().for_each(|&row| logits.extend_from_slice(&read[row * vocab_size..][..vocab_size]));
                Self::Logits(logits)
            }
            Self::Best(read) => Self::Best(parents.iter().map(|&row| read[row]).collect()),
        }
    }
}

/// What was chosen for one row.
pub(super) struct Choice {
    pub(super) token: ChosenToken,
    pub(super) trace: Option<Traced>,
}

impl From<Best> for Choice {
    fn from(Best { id, logprob }: Best) -> Self {
        Self { token: ChosenToken { id, logprob, top: Vec::new() }, trace: None }
    }
}

/// An account of a choice, and the logits `[vocab]` before and after the processors.
pub(super) struct Traced {
    pub(super) account: ChoiceTrace,
    pub(super) unmodified: Vec<f32>,
    pub(super) processed: Vec<f32>,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(plan: &Plan<'a>) -> Self {
        Self { config: plan.config, chain: plan.chain(), traced_candidates: plan.traced_candidates }
    }

    /// What the choice after every row of `sequences` needs: where that is the best token and no word on others, no more.
    ///
    /// # Errors
    /// When the device fails.
    pub(super) fn read(&self, sequences: &mut dyn Sequences) -> Result<Next> {
        let config = self.config;
        let plain = config.strategy == Strategy::Greedy && self.chain.is_empty();
        if plain
            && config.logprobs == 0
            && self.traced_candidates == 0
            && let Some(best) = sequences.best()?
        {
            return Ok(Next::Best(best));
        }
        sequences.logits().map(Next::Logits)
    }

    /// A token for every row of `sequences`, by what was read of them; `live` are the rows' numbers.
    ///
    /// # Errors
    /// When logits are not finite, or the knobs of `plan` leave a row no token.
    pub(super) fn choose_all(
        &self,
        plan: &Plan,
        sequences: &dyn Sequences,
        live: &[usize],
        rows: &[Row],
        next: Next,
    ) -> Result<Vec<Choice>> {
        let mut logits = match next {
            Next::Logits(logits) => logits,
            Next::Best(best) => return Ok(best.into_iter().map(Choice::from).collect()),
        };
        let vocab_size = sequences.vocab_size();
        let steps = live.iter().enumerate().map(|(place, &number)| {
            let (prompt, generated) = sequences.ids(place).split_at(rows[number].prompt_len);
            (Step { prompt, generated }, rows[number].sequence)
        });
        let steps: Vec<(Step, u64)> = steps.collect();
        let at_once = if logits.len() < WORTH_SHARING { usize::MAX } else { 1 };
        let rows = steps.par_iter().with_min_len(at_once).zip(logits.par_chunks_mut(vocab_size));
        let chosen = rows.map(|((step, sequence), logits)| self.choose(step, *sequence, logits));
        let chosen: Result<Vec<Option<Choice>>> = chosen.collect();
        let nothing_left = |place: usize| plan.nothing_left(&self.chain, steps[place].0.generated);
        chosen?.into_iter().enumerate().map(|(place, choice)| choice.ok_or_else(|| nothing_left(place))).collect()
    }

    /// The next token for this step of the given sequence; none where none is left.
    ///
    /// # Errors
    /// When the logits are not finite, as the model gives them or as the knobs make them.
    pub(super) fn choose(&self, step: &Step, sequence: u64, logits: &mut [f32]) -> Result<Option<Choice>> {
        let config = self.config;
        let norm = norm(logits)?;
        // The chain edits in place; without one there is nothing to keep.
        let unmodified = if self.chain.is_empty() { None } else { Some(logits.to_vec()) };
        let mut recorder = (self.traced_candidates > 0).then(|| Recorder::new(logits));
        match &mut recorder {
            None => self.chain.process(step, logits),
            Some(recorder) => {
                self.chain.process_observed(step, logits, &mut |name, logits| recorder.after(name, logits))
            }
        }
        if self.chain.highest(logits)? == f32::NEG_INFINITY {
            return Ok(None);
        }
        let drawn = (config.strategy == Strategy::Sample)
            .then(|| draw(config.seed, sequence, step.generated.len() as u64, logits));
        let id = drawn.map_or_else(|| greedy(logits), |drawn| drawn.id);
        let token = chosen(id, unmodified.as_deref().unwrap_or(logits), norm, config.logprobs);
        let trace = recorder.map(|recorder| Traced {
            account: recorder.finish(step.generated.len(), id, token.logprob, drawn, self.traced_candidates),
            unmodified: unmodified.unwrap_or_else(|| logits.to_vec()),
            processed: logits.to_vec(),
        });
        Ok(Some(Choice { token, trace }))
    }
}
