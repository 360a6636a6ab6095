//! The gradient of a step: its windows in passes that memory holds, added up.

use std::ops::Range;

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Int, Tensor, TensorData};
use ember_data::random;
use ember_data::windows::{Batch, TrainWindows};
use ember_model::Gpt;
use rand_chacha::rand_core::Rng;

use crate::loss::cross_entropy;

/// The mean loss over some windows, and its gradient.
pub struct Gradient {
    /// Nats per token.
    pub loss: f64,
    /// By parameter.
    pub of: GradientsParams,
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
    /// The number of the first pass: above 0 where other processes make those before it.
    pub first_pass: u64,
}

/// The mean loss over the windows numbered `range`, and its gradient.
pub fn gradient(gpt: &Gpt, windows: &TrainWindows, range: Range<u64>, passes: Passes) -> Gradient {
    let Passes { micro_batch, seed, step, first_pass } = passes;
    let count = (range.end - range.start).div_ceil(micro_batch as u64);
    let mut gradients = GradientsAccumulator::new();
    let mut losses = Vec::new();
    for (pass, first) in (first_pass..).zip(range.step_by(micro_batch)) {
        let batch = windows.batch(first, micro_batch);
        gpt.device().seed(random::rng(seed, &[step, pass]).next_u64());
        let loss = next_token_loss(gpt, &batch);
        // The gradient of the mean over all passes: each counts for its share.
        let share = loss.clone() / count as f64;
        gradients.accumulate(gpt, GradientsParams::from_grads(share.backward(), gpt));
        losses.push(loss);
    }
    // Read at the end: a GPU works on while the host goes through the passes.
    let loss = losses.into_iter().map(|loss| f64::from(loss.into_scalar::<f32>())).sum::<f64>() / count as f64;
    Gradient { loss, of: gradients.grads() }
}

/// Next-token loss of a batch of windows, with the graph recorded and dropout acting.
pub fn next_token_loss(gpt: &Gpt, batch: &Batch) -> Tensor<1> {
    cross_entropy(batch_logits(gpt, batch), &batch.targets)
}

/// Logits `[batch, time, vocab]` at every position of a batch of windows.
pub fn batch_logits(gpt: &Gpt, batch: &Batch) -> Tensor<3> {
    let ids: Vec<i32> = batch.inputs.iter().map(|id| *id as i32).collect();
    let shape = [batch.batch_size, batch.context_length];
    gpt.forward(Tensor::<2, Int>::from_data(TensorData::new(ids, shape), &gpt.device()))
}
