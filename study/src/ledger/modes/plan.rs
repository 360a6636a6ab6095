//! The batch of every mode, and how training runs it.

use burn::optim::{GradientsAccumulator, GradientsParams};
use ember_data::windows::Batch;
use ember_model::Gpt;

use crate::error::{Result, proceed_if};
use ember_training::{config::TrainConfig, memory::prediction::Sizes, step::gradient, step::gradient::Passes};

/// The common input of every mode.
pub struct Plan<'a> {
    /// The tokens and their targets.
    pub batch: Batch,
    /// How many tokens at the end of each row are decoded one by one, the rest being the prompt: at
    /// least 1, and fewer than the row has.
    pub new_tokens: usize,
    /// How often each mode is timed at most; at least 1.
    pub repeats: usize,
    /// How training takes a step, in one pass over the batch; its seed determines the dropout.
    /// Inference is always float32.
    pub config: TrainConfig,
    /// Whether to go on; called before each pass of training and decoding, and each timing.
    pub go_on: &'a dyn Fn() -> bool,
}

impl Plan<'_> {
    /// Calls `go_on`; an error if it says to stop.
    pub(crate) fn proceed(&self) -> Result<()> {
        proceed_if((self.go_on)())
    }

    /// The batch's size.
    pub fn sizes(&self) -> Sizes {
        Sizes { batch: self.batch.batch_size, time: self.batch.context_length }
    }

    /// How the batch goes through the model in training.
    fn passes(&self, gpt: &Gpt) -> Passes {
        let TrainConfig { activation_checkpointing, micro_batch, seed, .. } = self.config;
        let passes = Passes { activation_checkpointing, ..Passes::plain(micro_batch, seed) };
        passes.on(&gpt.device())
    }

    /// Whether a training pass runs in segments.
    pub(super) fn in_segments(&self, gpt: &Gpt) -> bool {
        self.passes(gpt).in_segments(self.tokens() * gpt.config().vocab_size)
    }

    /// The gradient of the batch, as training computes it.
    pub(super) fn gradient(&self, gpt: &Gpt) -> GradientsParams {
        self.gradient_of(gpt, &self.batch)
    }

    /// The gradient of another batch.
    pub(crate) fn gradient_of(&self, gpt: &Gpt, batch: &Batch) -> GradientsParams {
        let mut gradients = GradientsAccumulator::new();
        gradient::pass(gpt, batch, 0, 1.0, &self.passes(gpt), &mut gradients);
        gradients.grads()
    }

    /// Number of each row's tokens before decoding begins.
    pub fn prompt(&self) -> usize {
        self.batch.context_length - self.new_tokens
    }

    pub(super) fn tokens(&self) -> usize {
        self.batch.inputs.len()
    }

    /// The first `len` ids of each row.
    pub(super) fn rows(&self, len: usize) -> Vec<&[u32]> {
        self.batch.inputs.chunks(self.batch.context_length).map(|row| &row[..len]).collect()
    }
}
