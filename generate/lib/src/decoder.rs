//! What every strategy is given, and what it gives: the trait behind which each stands for itself.

use std::time::Instant;

use crate::sequences::{Sequences, slots};
use crate::{
    completion::Completion, config::GenerationConfig, error::Result, plan::Plan, processors::Chain, watch::Watch,
};

/// A strategy at work.
pub(crate) trait Decoder {
    /// Whether it continues all prompts together, one pass through the model a step, and not one
    /// after the other.
    fn takes_all_prompts(&self) -> bool {
        true
    }

    /// Positions that the cache will hold at most for these prompts.
    fn slots(&self, prompts: &[&[u32]], config: &GenerationConfig, context_length: usize) -> usize {
        let rows = config.num_return_sequences.max(config.num_beams);
        slots(prompts, rows, config.max_new_tokens, context_length)
    }

    /// Continues the prompts, which are the rows of `sequences`: for each its
    /// `num_return_sequences` completions, the best first where they are ranked, and fewer where a
    /// search finds no more.
    ///
    /// # Errors
    /// When the context is full and the window may not slide, the knobs leave no token to choose
    /// from, the logits are not finite, or a device fails.
    fn write(&self, sequences: &mut dyn Sequences, job: &Job, watch: &mut dyn Watch) -> Result<Vec<Vec<Completion>>>;
}

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
}
