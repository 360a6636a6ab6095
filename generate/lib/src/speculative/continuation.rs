//! One sequence that speculative decoding generates, and its random numbers.

use crate::{job::Job, sampler::uniform};

/// One sequence that continues the job's first prompt, greedy or sampled.
pub(crate) struct Continuation<'a> {
    pub(crate) job: &'a Job<'a>,
    /// Index among the prompt's sequences.
    pub(crate) number: usize,
}

/// The kinds of draws at a position; each has its own random stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Draw {
    Proposal,
    Acceptance,
    Token,
}

impl Continuation<'_> {
    /// A uniform number in [0, 1), fixed by the seed, the sequence, the step and the kind of draw.
    ///
    /// A position is drafted again only if an earlier proposal was rejected. The rejection depended
    /// on draws at that earlier position, so the number here is still independent when it is used a
    /// second time.
    pub(super) fn uniform(&self, step: usize, what: Draw) -> f64 {
        let sequence = self.job.plan.sequence(self.job.first_prompt, self.number);
        uniform(self.job.plan.config.seed, &[sequence, step as u64, what as u64])
    }
}
