//! What every strategy is given.

use std::time::Instant;

use crate::config::Overflow;
use crate::error::{Error, Overrun, Result};
use crate::{completion::FinishReason, plan::Plan, processors::Chain};

/// What is to be done.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    /// The knobs, and what ends a text.
    pub(crate) plan: &'a Plan<'a>,
    /// What works on the logits.
    pub(crate) chain: &'a Chain,
    /// The place in the batch of the prompt that the first row is.
    pub(crate) first_prompt: usize,
    /// From when `max_time_s` and the completions' seconds count.
    pub(crate) started: Instant,
}

impl Job<'_> {
    /// The number by which the caller knows a prompt's sequence.
    pub(crate) fn row(&self, prompt: usize, sequence: usize) -> usize {
        prompt * self.plan.config.num_return_sequences + sequence
    }

    /// How long it has been at work.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// What becomes of a text that after so many new tokens is longer than the context: it goes on
    /// in a window that slides, or ends for a reason.
    ///
    /// # Errors
    /// When it may do neither.
    pub(crate) fn outgrown(&self, context_length: usize, tokens: usize) -> Result<Option<FinishReason>> {
        match self.plan.config.overflow {
            Overflow::Slide => Ok(None),
            Overflow::Stop => Ok(Some(FinishReason::Length)),
            Overflow::Error => Err(Error::ContextFull { context_length, overrun: Overrun::Text(tokens) }),
        }
    }
}
