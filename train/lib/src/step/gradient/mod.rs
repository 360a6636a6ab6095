//! The gradient of a step, accumulated over passes (micro-batches) that fit into memory.
//!
//! A pass runs through the model in one piece, or in segments if memory is short.

mod loss_scale;
mod passes;
mod segments;

use std::ops::Range;

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use ember_data::windows::{Batch, TrainWindows};
use ember_model::Gpt;

use crate::error::Result;
use ember_kernels::cross_entropy::Loss;

use segments::Pass;

pub use loss_scale::LossScale;
pub use passes::{LOGITS_OF_A_PIECE, Passes, inputs, logits_of_a_piece, positions_of_a_piece};

/// The mean loss over some windows, and its gradient.
pub struct Gradient {
    /// Cross-entropy in nats per token, without other terms of the objective.
    pub loss: f64,
    /// The gradient of each parameter, in float32.
    pub gradients: GradientsParams,
}

/// A gradient that a GPU may still be computing.
pub struct Enqueued {
    /// The loss of each pass, one value.
    pub losses: Vec<Tensor<1>>,
    /// The gradient of each parameter, in float32.
    pub gradients: GradientsParams,
}

impl Enqueued {
    /// Waits for the losses and returns their mean with the gradient.
    pub fn read(self) -> Gradient {
        let count = self.losses.len();
        let loss = self.losses.into_iter().map(|loss| f64::from(loss.into_scalar::<f32>())).sum::<f64>() / count as f64;
        Gradient { loss, gradients: self.gradients }
    }
}

/// The mean loss over the windows numbered `range`, and its gradient; `None` if `stop` returns true
/// before a pass.
///
/// # Errors
/// When the tokens cannot be read.
pub fn of_windows(
    gpt: &Gpt,
    windows: &TrainWindows,
    range: Range<u64>,
    passes: Passes,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Gradient>> {
    Ok(enqueue(gpt, windows, range, passes, stop)?.map(Enqueued::read))
}

/// Like [`of_windows`], but without waiting for a GPU: while it computes one pass, the host
/// prepares the next.
///
/// # Errors
/// When the tokens cannot be read.
pub fn enqueue(
    gpt: &Gpt,
    windows: &TrainWindows,
    range: Range<u64>,
    passes: Passes,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Enqueued>> {
    let Passes { micro_batch, first_pass, .. } = passes;
    let divisor = passes.divisor(passes.count(range.end - range.start));
    let mut gradients = GradientsAccumulator::new();
    let mut losses = Vec::new();
    for (number, first) in (first_pass..).zip(range.step_by(micro_batch)) {
        if stop() {
            return Ok(None);
        }
        let batch = windows.batch(first, micro_batch)?;
        losses.push(pass(gpt, &batch, number, divisor, &passes, &mut gradients));
    }
    Ok(Some(Enqueued { losses, gradients: accumulated(gpt, gradients, &passes) }))
}

/// One forward and backward pass, number `number` of its step: adds the gradient of the objective,
/// divided by `divisor`, to `gradients`. Returns the cross-entropy, one value.
pub fn pass(
    gpt: &Gpt,
    batch: &Batch,
    number: u64,
    divisor: f64,
    passes: &Passes,
    gradients: &mut GradientsAccumulator<Gpt>,
) -> Tensor<1> {
    let tokens = inputs(gpt, batch);
    let mut pass = Pass { gpt, targets: &batch.targets, divisor, passes, gradients };
    if passes.activation_checkpointing {
        return pass.by_block(number, tokens);
    }
    passes.reseed(&[number]);
    let Loss { objective, cross_entropy } = pass.loss(gpt.hidden(tokens));
    pass.add(objective.backward());
    cross_entropy
}

/// The first half of a [`pass`] without activation checkpointing: the objective, divided by
/// `divisor`, with its graph, and the cross-entropy. What the graph keeps can be measured before
/// [`pass_backward`] frees it.
pub fn pass_forward(gpt: &Gpt, batch: &Batch, number: u64, divisor: f64, passes: &Passes) -> Loss {
    let mut none = GradientsAccumulator::new();
    let pass = Pass { gpt, targets: &batch.targets, divisor, passes, gradients: &mut none };
    passes.reseed(&[number]);
    pass.loss(gpt.hidden(inputs(gpt, batch)))
}

/// The second half of such a [`pass`]: adds the gradient of its objective to `gradients`.
pub fn pass_backward(gpt: &Gpt, objective: Tensor<1>, gradients: &mut GradientsAccumulator<Gpt>) {
    gradients.accumulate(gpt, GradientsParams::from_grads(objective.backward(), gpt));
}

/// The gradient of a step, to which all its passes have added: what is left is to divide by the
/// loss scale.
pub fn accumulated(gpt: &Gpt, mut gradients: GradientsAccumulator<Gpt>, passes: &Passes) -> GradientsParams {
    loss_scale::unscaled(gpt, gradients.grads(), passes.loss_scale)
}

/// The gradient of a step that is a single pass over `batch`, as [`enqueue`] computes it from the
/// windows of a text.
pub fn of_batch(gpt: &Gpt, batch: &Batch, passes: &Passes) -> Enqueued {
    let mut gradients = GradientsAccumulator::new();
    let loss = pass(gpt, batch, passes.first_pass, passes.divisor(1), passes, &mut gradients);
    Enqueued { losses: vec![loss], gradients: accumulated(gpt, gradients, passes) }
}

#[cfg(test)]
mod tests;
