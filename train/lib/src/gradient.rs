//! The gradient of a step: its windows in passes that memory holds, added up.
//!
//! A pass goes through the model in one piece, unless memory is short: then in [`segments`].

mod scaling;
mod segments;

use std::ops::Range;

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_data::random;
use ember_data::windows::{Batch, TrainWindows};
use ember_model::Gpt;
use ember_model::kernels::DropoutMask;
use rand_chacha::rand_core::Rng;

use crate::config::TrainConfig;
use crate::error::Result;
use crate::loss::{Loss, Objective, cross_entropy, loss_over};

pub use scaling::LossScale;
pub use segments::{MOST_LOGITS, MOST_LOGITS_ON_GPU};

/// The mean loss over some windows, and its gradient.
pub struct Gradient {
    /// Cross-entropy in nats per token, whatever else is minimised.
    pub loss: f64,
    /// By parameter, in float32.
    pub of: GradientsParams,
}

/// A gradient that a GPU may still be at work on.
pub struct Enqueued {
    /// The loss of each pass, one value.
    pub losses: Vec<Tensor<1>>,
    /// As [`Gradient::of`].
    pub of: GradientsParams,
}

impl Enqueued {
    /// The gradient with its loss, which the host waits for.
    pub fn read(self) -> Gradient {
        let count = self.losses.len();
        let loss = self.losses.into_iter().map(|loss| f64::from(loss.into_scalar::<f32>())).sum::<f64>() / count as f64;
        Gradient { loss, of: self.of }
    }
}

/// How the windows of a step go through the model.
#[derive(Clone, Copy, Debug)]
pub struct Passes {
    /// Windows in one pass.
    pub micro_batch: usize,
    /// The run's seed, and the step: with the number of the pass they name its randomness.
    pub seed: u64,
    /// See `seed`.
    pub step: u64,
    /// What is minimised.
    pub objective: Objective,
    /// Whether a pass keeps only each block's input for the backward, and computes the rest again.
    pub activation_checkpointing: bool,
    /// Logits that are there at once at most: where a pass has more, its head and loss go piece by piece.
    pub most_logits: usize,
    /// What the loss is multiplied by on its way back, a power of two; the gradient is divided by it in the end.
    pub loss_scale: f64,
    /// The number of the first pass: above 0 where other processes make those before it.
    pub first_pass: u64,
}

impl Passes {
    /// The passes of step `step` of a run.
    pub fn of(config: &TrainConfig, step: u64, loss_scale: f64) -> Self {
        Self {
            step,
            objective: Objective { z_loss: config.z_loss, label_smoothing: config.label_smoothing },
            activation_checkpointing: config.activation_checkpointing,
            loss_scale,
            ..Self::plain(config.micro_batch, config.seed)
        }
    }

    /// Passes of so many windows that minimise the cross-entropy alone, with nothing spared or scaled.
    pub fn plain(micro_batch: usize, seed: u64) -> Self {
        Self {
            micro_batch,
            seed,
            step: 0,
            objective: Objective::default(),
            activation_checkpointing: false,
            most_logits: MOST_LOGITS,
            loss_scale: 1.0,
            first_pass: 0,
        }
    }

    /// The same passes, with as many logits at once as suit `device`.
    pub fn on(self, device: &Device) -> Self {
        Self { most_logits: segments::most_logits(device), ..self }
    }

    /// Whether a pass with so many logits goes through the model in segments: then no moment has all that it keeps.
    pub fn in_segments(&self, logits: usize) -> bool {
        self.activation_checkpointing || logits > self.most_logits
    }

    /// Lets the dropout be what (seed, step, pass) and, where a pass goes in segments, the segment name.
    fn reseed(&self, names: &[u64]) {
        let names: Vec<u64> = [self.step].iter().chain(names).copied().collect();
        DropoutMask::seed(random::rng(self.seed, &names).next_u64());
    }
}

/// The mean loss over the windows numbered `range`, and its gradient.
///
/// # Errors
/// When the tokens cannot be read.
pub fn gradient(gpt: &Gpt, windows: &TrainWindows, range: Range<u64>, passes: Passes) -> Result<Gradient> {
    Ok(enqueue(gpt, windows, range, passes)?.read())
}

/// As [`gradient`], without waiting for a GPU: while it works on one pass, the host prepares the next.
///
/// # Errors
/// When the tokens cannot be read.
pub fn enqueue(gpt: &Gpt, windows: &TrainWindows, range: Range<u64>, passes: Passes) -> Result<Enqueued> {
    let Passes { micro_batch, loss_scale, first_pass, .. } = passes;
    let count = (range.end - range.start).div_ceil(micro_batch as u64);
    // The gradient of the mean over all passes: each counts for its share.
    let divisor = count as f64 / loss_scale;
    let mut gradients = GradientsAccumulator::new();
    let mut losses = Vec::new();
    for (number, first) in (first_pass..).zip(range.step_by(micro_batch)) {
        let batch = windows.batch(first, micro_batch)?;
        losses.push(pass(gpt, &batch, number, divisor, &passes, &mut gradients));
    }
    Ok(Enqueued { losses, of: scaling::unscaled(gpt, gradients.grads(), loss_scale) })
}

/// Adds the gradient of one pass, number `number` of its step, to `gradients`: the objective's over `divisor`. Returns the
/// cross-entropy, one value.
pub fn pass(
    gpt: &Gpt,
    batch: &Batch,
    number: u64,
    divisor: f64,
    passes: &Passes,
    gradients: &mut GradientsAccumulator<Gpt>,
) -> Tensor<1> {
    let logits = batch.inputs.len() * gpt.config().vocab_size;
    if passes.activation_checkpointing {
        return segments::by_block(gpt, batch, number, divisor, passes, gradients);
    }
    passes.reseed(&[number]);
    if logits > passes.most_logits {
        return segments::head_by_piece(gpt, batch, divisor, passes, gradients);
    }
    let logits = gpt.logits_as_computed(gpt.hidden(inputs(gpt, batch)));
    let Loss { objective, cross_entropy } = loss_over(logits, &batch.targets, passes.objective, divisor);
    gradients.accumulate(gpt, GradientsParams::from_grads(objective.backward(), gpt));
    cross_entropy
}

/// Next-token loss of a batch of windows, with the graph recorded and dropout acting.
pub fn next_token_loss(gpt: &Gpt, batch: &Batch) -> Tensor<1> {
    cross_entropy(batch_logits(gpt, batch), &batch.targets)
}

/// Logits `[batch, time, vocab]` at every position of a batch of windows.
pub fn batch_logits(gpt: &Gpt, batch: &Batch) -> Tensor<3> {
    gpt.forward(inputs(gpt, batch))
}

/// The token ids of a batch of windows, `[batch, time]`, on the model's device.
pub fn inputs(gpt: &Gpt, batch: &Batch) -> Tensor<2, Int> {
    let ids: Vec<i32> = batch.inputs.iter().map(|id| *id as i32).collect();
    Tensor::from_data(TensorData::new(ids, [batch.batch_size, batch.context_length]), &gpt.device())
}

#[cfg(test)]
mod tests;
