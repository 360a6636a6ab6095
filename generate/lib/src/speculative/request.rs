//! What speculative decoding is asked for, and its random numbers.

use crate::{job::Job, sampler::uniform};

/// What to generate, by guesses or not: a sequence of the job's first prompt, greedy or sampled.
pub(crate) struct Request<'a> {
    pub(crate) job: &'a Job<'a>,
    /// Which of the prompt's sequences it is.
    pub(crate) number: usize,
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
    /// A position is guessed at again only where an earlier guess was refused. What refused it was
    /// drawn at the earlier position, so that the number here, used a second time, is still as good
    /// as new.
    pub(super) fn uniform(&self, step: usize, what: Draw) -> f64 {
        let sequence = self.job.plan.sequence(self.job.first_prompt, self.number);
        uniform(self.job.plan.config.seed, &[sequence, step as u64, what as u64])
    }
}
