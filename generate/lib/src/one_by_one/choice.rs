//! Choosing the next token of every row: processors first, then the best token or a draw.

use rayon::prelude::*;

use crate::logprobs::{chosen, finite_log_sum_exp};
use crate::processors::Step;
use crate::sampler::{draw, greedy};
use crate::sequences::{Argmax, Sequences};
use crate::trace::{Recorder, TracedStep};
use crate::{completion::ChosenToken, config::Strategy, error::Result, job::Job};

/// Below this many logits in total, one thread chooses: waking others would cost more.
const WORTH_SHARING: usize = 1 << 14;

/// The model's output for the next token of some rows.
pub(super) enum Next {
    /// The logits, `[rows, vocab]`.
    Logits(Vec<f32>),
    /// The most probable token of each row, if nothing else is needed.
    Argmax(Vec<Argmax>),
}

impl Next {
    /// Reorders the output for new rows: new row i continues old row `parents[i]`.
    pub(super) fn select(self, parents: &[usize], vocab_size: usize) -> Self {
        match self {
            Self::Logits(read) => {
                let mut logits = Vec::with_capacity(parents.len() * vocab_size);
                parents.iter().for_each(|&row| logits.extend_from_slice(&read[row * vocab_size..][..vocab_size]));
                Self::Logits(logits)
            }
            Self::Argmax(read) => Self::Argmax(parents.iter().map(|&row| read[row]).collect()),
        }
    }
}

/// The chosen token of one row, and its trace.
pub(crate) struct Choice {
    pub(super) token: ChosenToken,
    pub(super) trace: Option<TracedStep>,
}

/// Reads what the choice for every row of `sequences` needs: the logits, or only the argmax if that
/// suffices and the device can compute it.
///
/// # Errors
/// If the device fails.
pub(super) fn read(job: &Job, sequences: &mut dyn Sequences) -> Result<Next> {
    let config = job.plan.config;
    let plain = config.strategy == Strategy::Greedy && job.chain.is_empty();
    let best_is_all = plain && config.logprobs == 0 && job.plan.traced_candidates == 0;
    if best_is_all && let Some(argmax) = sequences.argmax()? {
        return Ok(Next::Argmax(argmax));
    }
    sequences.logits().map(Next::Logits)
}

/// Chooses a token for every row, given its ids, the sequence number that keys its draws, and the
/// model's output.
///
/// # Errors
/// If logits are not finite, or the knobs leave a row no token.
pub(super) fn choose_all(job: &Job, rows: &[(Step, u64)], next: Next, vocab_size: usize) -> Result<Vec<Choice>> {
    let best = |Argmax { id, logprob }| Choice { token: ChosenToken { id, logprob, top: Vec::new() }, trace: None };
    let mut logits = match next {
        Next::Logits(logits) => logits,
        Next::Argmax(argmax) => return Ok(argmax.into_iter().map(best).collect()),
    };
    let at_once = if logits.len() < WORTH_SHARING { usize::MAX } else { 1 };
    let with_logits = rows.par_iter().with_min_len(at_once).zip(logits.par_chunks_mut(vocab_size));
    let chosen = with_logits.map(|((step, sequence), logits)| choose(job, step, *sequence, logits));
    let chosen: Result<Vec<Option<Choice>>> = chosen.collect();
    let nothing_left = |step: &Step| job.plan.nothing_left(job.chain, step.generated);
    chosen?.into_iter().zip(rows).map(|(choice, (step, _))| choice.ok_or_else(|| nothing_left(step))).collect()
}

/// The next token for this step of the given sequence; `None` if the knobs leave none.
///
/// # Errors
/// If the logits are not finite, either from the model or after the knobs.
pub(crate) fn choose(job: &Job, step: &Step, sequence: u64, logits: &mut [f32]) -> Result<Option<Choice>> {
    let (config, traced_candidates) = (job.plan.config, job.plan.traced_candidates);
    let log_sum_exp = finite_log_sum_exp(logits)?;
    // The chain edits the logits in place, so keep a copy if there is a chain.
    let unmodified = if job.chain.is_empty() { None } else { Some(logits.to_vec()) };
    let mut recorder = (traced_candidates > 0).then(|| Recorder::new(logits));
    let mut record = |name, logits: &[f32]| {
        if let Some(recorder) = &mut recorder {
            recorder.after(name, logits);
        }
    };
    job.chain.process_observed(step, logits, &mut record);
    // `finite_log_sum_exp` has already checked the unmodified logits.
    if !job.chain.is_empty() && job.chain.checked_highest(logits)? == f32::NEG_INFINITY {
        return Ok(None);
    }
    let drawn =
        (config.strategy == Strategy::Sample).then(|| draw(config.seed, sequence, step.generated.len() as u64, logits));
    let id = drawn.map_or_else(|| greedy(logits), |drawn| drawn.id);
    let token = chosen(id, unmodified.as_deref().unwrap_or(logits), log_sum_exp, config.logprobs);
    let trace = recorder.map(|recorder| TracedStep {
        choice: recorder.finish(step.generated.len(), id, token.logprob, drawn, traced_candidates),
        unmodified: unmodified.unwrap_or_else(|| logits.to_vec()),
        processed: logits.to_vec(),
    });
    Ok(Some(Choice { token, trace }))
}
