//! The input common to all strategies.

use std::time::Instant;

use crate::config::Overflow;
use crate::error::{Error, Overrun, Result};
use crate::{completion::FinishReason, plan::Plan, processors::Chain};

/// A group of prompts to continue, as handed to a strategy.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    /// The knobs, and the conditions that end a text.
    pub(crate) plan: &'a Plan<'a>,
    /// The logits processors.
    pub(crate) chain: &'a Chain,
    /// Index in the whole batch of the prompt in row 0.
    pub(crate) first_prompt: usize,
    /// Start time for `max_time_s` and the completions' seconds.
    pub(crate) started: Instant,
}

impl Job<'_> {
    /// The caller's row number for a prompt's sequence.
    pub(crate) fn row(&self, prompt: usize, sequence: usize) -> usize {
        prompt * self.plan.config.num_return_sequences + sequence
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// What to do with a text that exceeds the context after `tokens` new tokens: `None` continues
    /// it with a sliding window, a reason ends it.
    ///
    /// # Errors
    /// Under [`Overflow::Error`].
    pub(crate) fn outgrown(&self, context_length: usize, tokens: usize) -> Result<Option<FinishReason>> {
        match self.plan.config.overflow {
            Overflow::Slide => Ok(None),
            Overflow::Stop => Ok(Some(FinishReason::Length)),
            Overflow::Error => Err(Error::ContextFull { context_length, overrun: Overrun::Text(tokens) }),
        }
    }
}
