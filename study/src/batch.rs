//! Runs a batch through the model, to be measured and compared. A training step runs its batches
//! through [`pass`](ember_training::step::gradient::pass).

use burn::tensor::Tensor;
use ember_data::windows::Batch;
use ember_model::Gpt;
use ember_training::step::gradient::inputs;

/// Logits `[batch, time, vocab]` at every position of a batch of windows.
pub fn batch_logits(gpt: &Gpt, batch: &Batch) -> Tensor<3> {
    gpt.forward(inputs(gpt, batch))
}
