//! How the windows of a step are divided into passes through the model.

use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_data::{random, windows::Batch};
use ember_kernels::cross_entropy::Objective;
use ember_kernels::{DropoutMask, is_cpu, limits::values_at_once};
use ember_model::Gpt;
use rand_chacha::rand_core::Rng;

use crate::config::TrainConfig;

/// Logits that a pass computes at once on the CPU, 128 MiB of float32; more are computed in pieces.
/// Larger pieces gain no speed, and below this size a piece's own gradient of the head costs more
/// than it saves.
pub const LOGITS_OF_A_PIECE: usize = 32 << 20;

/// The same on a GPU whose buffers hold as many: 512 MiB of bfloat16. Its matrix products reach full
/// speed only with this many rows, and each further piece costs one more sum of two gradients of the
/// head.
const LOGITS_OF_A_PIECE_ON_GPU: usize = 256 << 20;

/// Logits that a pass computes at once on `device`.
pub fn logits_of_a_piece(device: &Device) -> usize {
    let most = if is_cpu(device) { LOGITS_OF_A_PIECE } else { LOGITS_OF_A_PIECE_ON_GPU };
    values_at_once(most, device)
}

/// The positions of a piece, if a pass may not compute the logits of all `positions` at once; else
/// `None`. The pieces are as few as possible and equal, except that the last has what remains.
///
/// For example, 9 positions of which 4 may be computed at once make pieces of 3, 3 and 3, not of 4,
/// 4 and 1; 10 positions make pieces of 4, 4 and 2.
pub fn positions_of_a_piece(positions: usize, vocab_size: usize, most_logits: usize) -> Option<usize> {
    let at_once = most_logits / vocab_size;
    (positions > at_once).then(|| positions.div_ceil(positions.div_ceil(at_once.max(1))))
}

/// How the passes of a step are computed.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    /// Windows in one pass.
    pub micro_batch: usize,
    /// The run's seed. With the step and the pass number it determines the pass's randomness.
    pub seed: u64,
    /// The step, counted from 0.
    pub step: u64,
    /// The objective to minimise.
    pub objective: Objective,
    /// Whether a pass keeps only each block's input for the backward pass and recomputes the rest.
    pub activation_checkpointing: bool,
    /// Most logits at once: if a pass has more, its head and loss are computed in pieces.
    pub most_logits: usize,
    /// The factor on the loss before the backward pass, a power of two; the gradient is divided by
    /// it at the end.
    pub loss_scale: f64,
    /// The number of the first pass: above 0 where other processes compute the earlier ones.
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

    /// Passes of `micro_batch` windows that minimise the cross-entropy alone, without activation
    /// checkpointing or loss scaling.
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

    /// The same passes, with `most_logits` chosen for `device`.
    pub fn on(self, device: &Device) -> Self {
        Self { most_logits: logits_of_a_piece(device), ..self }
    }

    /// How many passes go over so many windows.
    pub fn count(&self, windows: u64) -> u64 {
        windows.div_ceil(self.micro_batch as u64)
    }

    /// What the objective of each of `count` passes is divided by: the sum of their gradients is
    /// then the gradient of the mean over all passes, times the loss scale.
    pub fn divisor(&self, count: u64) -> f64 {
        count as f64 / self.loss_scale
    }

    /// Whether a pass with this many logits is computed in segments: then its activations and
    /// logits are never all in memory at once.
    pub fn in_segments(&self, logits: usize) -> bool {
        self.activation_checkpointing || logits > self.most_logits
    }

    /// Seeds dropout from the run's seed, the step and `place`: the pass and, with activation
    /// checkpointing, the segment.
    pub(super) fn reseed(&self, place: &[u64]) {
        let names: Vec<u64> = [self.step].iter().chain(place).copied().collect();
        DropoutMask::seed(random::rng(self.seed, &names).next_u64());
    }
}

/// The token ids of a batch of windows, `[batch, time]`, on the model's device.
pub fn inputs(gpt: &Gpt, batch: &Batch) -> Tensor<2, Int> {
    let ids: Vec<i32> = batch.inputs.iter().map(|id| *id as i32).collect();
    Tensor::from_data(TensorData::new(ids, [batch.batch_size, batch.context_length]), &gpt.device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_few_and_nearly_equal() {
        let piece = |positions| positions_of_a_piece(positions, 100, 499);
        assert_eq!([1, 4, 5, 8, 9, 10].map(piece), [None, None, Some(3), Some(4), Some(3), Some(4)]);
        // One position may have more logits than are allowed.
        assert_eq!([1, 2].map(|positions| positions_of_a_piece(positions, 100, 99)), [Some(1), Some(1)]);
    }
}
