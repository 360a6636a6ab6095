//! What speculative decoding is asked for, and its random numbers.

use std::time::Instant;

use crate::plan::Plan;
use crate::processors::Chain;
use crate::sampler::uniform;

/// What to generate, by guesses or not.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The knobs, `draft_tokens` being the most that are guessed at a time, and what ends a text.
    /// The strategy is greedy or sampling.
    pub(crate) plan: &'a Plan<'a>,
    /// What works on the logits, the draft model's too.
    pub(crate) chain: &'a Chain,
    /// Names the draws.
    pub(crate) sequence: u64,
    /// The prompt's place in the batch.
    pub(crate) prompt: usize,
    /// The row that the caller knows it by.
    pub(crate) row: usize,
    /// From when `max_time_s` and the completion's seconds count.
    pub(crate) started: Instant,
}

/// What is drawn at a position; each has its own place among the random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Draw {
    Proposal,
    Acceptance,
    Token,
}

impl Request<'_> {
    /// A number from [0, 1), the same whenever the sequence's token number `step` is chosen.
    ///
    /// A position may be guessed at more than once, but only after a guess before it was replaced,
    /// which no draw at this position had a part in: using the same number again biases nothing.
    pub(super) fn uniform(&self, step: usize, what: Draw) -> f64 {
        uniform(&mut ember_data::random::rng(self.plan.config.seed, &[self.sequence, step as u64, what as u64]))
    }
}
