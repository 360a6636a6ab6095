//! The batch of every mode, and what is done with it.

use ember_data::windows::Batch;

use crate::error::{Result, proceed_if};
use ember_training::{config::TrainConfig, memory::prediction::Sizes};

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
