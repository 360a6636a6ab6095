//! Cross-entropy on the CPU: the loss and the gradient of the logits in one pass, in place of the logits.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Flex, backend_extension};
use ember_model::kernels::flex::{contiguous, new, values, values_mut};
use ember_model::kernels::simd;
use ember_model::simd_versions;
use rayon::prelude::*;

/// Rows of logits one task takes; also the unit in which losses are summed, so that the sum does not depend on the threads.
const ROWS: usize = 16;

/// Cross-entropy with its own backward.
#[backend_extension(Flex, Autodiff)]
pub trait LossOps: Backend {
    /// Mean cross-entropy of `logits` `[batch, time, vocab]`.
    fn cross_entropy(logits: FloatTensor<Self>, targets: Vec<u32>) -> FloatTensor<Self>;
}

/// What the backward of [`LossOps`] needs from a backend.
pub trait LossBackward: Backend {
    /// The mean loss, and its gradient with respect to the logits.
    fn loss_and_gradient(logits: FloatTensor<Self>, targets: &[u32]) -> (FloatTensor<Self>, FloatTensor<Self>);
    /// `gradient` times the one value of `factor`.
    fn scaled(gradient: FloatTensor<Self>, factor: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl LossOps for Flex {
    fn cross_entropy(logits: FlexTensor, targets: Vec<u32>) -> FlexTensor {
        Self::loss_and_gradient(logits, &targets).0
    }
}

impl LossBackward for Flex {
    fn loss_and_gradient(logits: FlexTensor, targets: &[u32]) -> (FlexTensor, FlexTensor) {
        let mut gradient = contiguous(logits);
        let rows = targets.len();
        let logits = values_mut(&mut gradient);
        let vocab = logits.len() / rows;
        let losses: Vec<f64> = logits
            .par_chunks_mut(ROWS * vocab)
            .zip(targets.par_chunks(ROWS))
            .map(|(logits, targets)| chunk(logits, targets, 1.0 / rows as f32))
            .collect();
        let loss = losses.iter().sum::<f64>() / rows as f64;
        (new(vec![loss as f32], [1]), gradient)
    }

    fn scaled(gradient: FlexTensor, factor: FlexTensor) -> FlexTensor {
        let factor = values(&contiguous(factor))[0];
        if factor == 1.0 {
            return gradient;
        }
        let mut gradient = contiguous(gradient);
        values_mut(&mut gradient).par_chunks_mut(8192).for_each(|chunk| chunk.iter_mut().for_each(|g| *g *= factor));
        gradient
    }
}

simd_versions! {
    // The summed loss of the rows; each row of logits becomes `weight * (softmax - one at the target)`.
    fn chunk(logits: &mut [f32], targets: &[u32], weight: f32) -> f64 {
        let vocab = logits.len() / targets.len();
        let mut loss = 0.0;
        for (row, target) in logits.chunks_exact_mut(vocab).zip(targets) {
            let largest = simd::max(row);
            let shifted = row[*target as usize] - largest;
            for x in row.iter_mut() {
                *x = simd::exp(*x - largest);
            }
            let total = { let row = &row[..]; simd::sum(vocab, |i| row[i]) };
            loss += (total.ln() - shifted) as f64;
            let factor = weight / total;
            for x in row.iter_mut() {
                *x *= factor;
            }
            row[*target as usize] -= weight;
        }
        loss
    }
}

#[derive(Debug)]
struct CrossEntropy;

impl<B: LossBackward> Backward<B, 1> for CrossEntropy {
    type State = B::FloatTensorPrimitive;
    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _kept: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        if let [Some(parent)] = ops.parents {
            grads.register::<B>(parent.id, B::scaled(ops.state, dy));
        }
    }
}

impl<B: LossOps + LossBackward, C: CheckpointStrategy> LossOps for Autodiff<B, C> {
    fn cross_entropy(logits: FloatTensor<Self>, targets: Vec<u32>) -> FloatTensor<Self> {
        match CrossEntropy.prepare::<C>([logits.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (loss, gradient) = B::loss_and_gradient(logits.into_primitive(), &targets);
                prep.finish(gradient, loss)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::cross_entropy(logits.into_primitive(), targets)),
        }
    }
}
