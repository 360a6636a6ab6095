//! The batch that every mode is given, and how training takes it.

use burn::optim::{GradientsAccumulator, GradientsParams};
use ember_data::windows::Batch;
use ember_model::{Gpt, GptConfig};

use ember_training::config::{Precision, TrainConfig};
use ember_training::memory::prediction::{Kernels, Sizes, training::Step};
use ember_training::step::{gradient, gradient::Passes, optimizer::OptimizerConfig};

/// What every mode is given.
pub struct Plan {
    /// The tokens, and the ones that come after each.
    pub batch: Batch,
    /// How many tokens at the end of each row are decoded one by one, the rest being the prompt: at
    /// least 1, fewer than the row has.
    pub new_tokens: usize,
    /// How often each mode is timed at most.
    pub repeats: usize,
    /// Names the dropout's draws.
    pub seed: u64,
    /// How training's step is taken.
    pub training: Training,
}

/// What decides the cost of a training step beside its batch and its model; inference is always
/// float32.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// The optimizer's numbers.
    pub optimizer: OptimizerConfig,
    /// What products are computed in.
    pub precision: Precision,
    /// Whether only each block's input is kept.
    pub activation_checkpointing: bool,
}

impl Training {
    /// The step of a run.
    pub fn new(config: &TrainConfig) -> Self {
        let TrainConfig { precision, activation_checkpointing, .. } = *config;
        Self { optimizer: config.into(), precision, activation_checkpointing }
    }

    /// Its memory is predicted by this.
    pub fn step(self, shape: &GptConfig, sizes: Sizes, kernels: Kernels) -> Step<'_> {
        Step {
            shape,
            sizes,
            kernels,
            precision: self.precision,
            activation_checkpointing: self.activation_checkpointing,
            several_passes: false,
            optimizer: self.optimizer,
        }
    }
}

impl Plan {
    /// The batch's size.
    pub fn sizes(&self) -> Sizes {
        Sizes { batch: self.batch.batch_size, time: self.batch.context_length }
    }

    /// The step that is measured, to be predicted.
    pub(super) fn step<'a>(&self, shape: &'a GptConfig, kernels: Kernels) -> Step<'a> {
        self.training.step(shape, self.sizes(), kernels)
    }

    /// How the batch goes through the model in training.
    fn passes(&self) -> Passes {
        let activation_checkpointing = self.training.activation_checkpointing;
        Passes { activation_checkpointing, ..Passes::plain(self.batch.batch_size, self.seed) }
    }

    /// Whether a training pass goes through the model in segments.
    pub(super) fn in_segments(&self, shape: &GptConfig) -> bool {
        self.passes().in_segments(self.tokens() * shape.vocab_size)
    }

    /// The gradient of the batch, as training computes it.
    pub(super) fn gradient(&self, gpt: &Gpt) -> GradientsParams {
        let mut gradients = GradientsAccumulator::new();
        gradient::pass(gpt, &self.batch, 0, 1.0, &self.passes(), &mut gradients);
        gradients.grads()
    }

    /// Tokens of each row that are there before decoding begins.
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
