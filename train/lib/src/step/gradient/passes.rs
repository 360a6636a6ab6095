//! How the windows of a step go through the model.

use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_data::{random, windows::Batch};
use ember_kernels::cross_entropy::Objective;
use ember_kernels::{DropoutMask, is_cpu, limits::values_at_once};
use ember_model::Gpt;
use rand_chacha::rand_core::Rng;

use crate::config::TrainConfig;

/// Logits that a pass computes at once, 128 MiB of float32; more of them go piece by piece. Larger
/// pieces gain no speed, and below this size a piece's own gradient of the head costs more than it
/// saves.
pub const LOGITS_OF_A_PIECE: usize = 32 << 20;

/// The same on a GPU: 512 MiB of bfloat16. Its products take this many rows to be at their full
/// speed, and each piece more costs one more sum of two gradients of the head.
pub const LOGITS_OF_A_PIECE_ON_GPU: usize = 256 << 20;

/// How the windows of a step go through the model.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    /// Windows in one pass.
    pub micro_batch: usize,
    /// The run's seed. With the step and the number of the pass it names the pass's randomness.
    pub seed: u64,
    /// The step, counted from 0.
    pub step: u64,
    /// What is minimised.
    pub objective: Objective,
    /// Whether a pass keeps only each block's input for the backward, and computes the rest again.
    pub activation_checkpointing: bool,
    /// Logits that are there at once at most: where a pass has more, its head and loss go piece by
    /// piece.
    pub most_logits: usize,
    /// What the loss is multiplied by on its way back, a power of two; the gradient is divided by
    /// it in the end.
    pub loss_scale: f64,
    /// The number of the first pass: above 0 where other processes make those before it.
    pub first_pass: u64,
}

impl Passes {
    /// The passes of step `step` of a run.
    pub fn new(config: &TrainConfig, step: u64, loss_scale: f64) -> Self {
        Self {
            step,
            objective: Objective { z_loss: config.z_loss, label_smoothing: config.label_smoothing },
            activation_checkpointing: config.activation_checkpointing,
            loss_scale,
            ..Self::plain(config.micro_batch, config.seed)
        }
    }

    /// Passes of so many windows that minimise the cross-entropy alone, with nothing spared or
    /// scaled.
    pub fn plain(micro_batch: usize, seed: u64) -> Self {
        Self {
            micro_batch,
            seed,
            step: 0,
            objective: Objective::default(),
            activation_checkpointing: false,
            most_logits: LOGITS_OF_A_PIECE,
            loss_scale: 1.0,
            first_pass: 0,
        }
    }

    /// The same passes, with as many logits at once as suit `device`.
    pub fn on(self, device: &Device) -> Self {
        let most = if is_cpu(device) { LOGITS_OF_A_PIECE } else { LOGITS_OF_A_PIECE_ON_GPU };
        Self { most_logits: values_at_once(most, device), ..self }
    }

    /// Whether a pass with so many logits goes through the model in segments: then no moment has
    /// all that it keeps.
    pub fn in_segments(&self, logits: usize) -> bool {
        self.activation_checkpointing || logits > self.most_logits
    }

    /// Lets the dropout be what (seed, step, pass) and, where a pass goes in segments, the segment
    /// name.
    pub(super) fn reseed(&self, names: &[u64]) {
        let names: Vec<u64> = [self.step].iter().chain(names).copied().collect();
        DropoutMask::seed(random::rng(self.seed, &names).next_u64());
    }
}

/// The token ids of a batch of windows, `[batch, time]`, on the model's device.
pub fn inputs(gpt: &Gpt, batch: &Batch) -> Tensor<2, Int> {
    let ids: Vec<i32> = batch.inputs.iter().map(|id| *id as i32).collect();
    Tensor::from_data(TensorData::new(ids, [batch.batch_size, batch.context_length]), &gpt.device())
}
