//! Cross-entropy on the CPU: the loss and the gradient of the logits in one pass, in place of the logits.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Flex, backend_extension};
use ember_model::kernels::flex::{contiguous, new, values, values_mut};
use ember_model::kernels::simd;
use ember_model::simd_versions;
use rayon::prelude::*;

use super::Objective;

/// Rows of logits one task takes; also the unit in which losses are summed, so that the sum does not depend on the threads.
const ROWS: usize = 16;

/// Cross-entropy with its own backward.
#[backend_extension(Flex, Autodiff)]
pub trait LossOps: Backend {
    /// What is minimised, and the cross-entropy, of `logits` `[batch, time, vocab]`; each a mean over the positions.
    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: Vec<u32>,
        objective: Objective,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

/// What the backward of [`LossOps`] needs from a backend.
pub trait LossBackward: Backend {
    /// What is minimised and the cross-entropy, and the gradient of the first with respect to the logits.
    fn loss_and_gradient(
        logits: FloatTensor<Self>,
        targets: &[u32],
        objective: Objective,
    ) -> ([FloatTensor<Self>; 2], FloatTensor<Self>);
    /// `gradient` times the one value of `factor`.
    fn scaled(gradient: FloatTensor<Self>, factor: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl LossOps for Flex {
    fn cross_entropy(logits: FlexTensor, targets: Vec<u32>, objective: Objective) -> (FlexTensor, FlexTensor) {
        let ([objective, cross_entropy], _gradient) = Self::loss_and_gradient(logits, &targets, objective);
        (objective, cross_entropy)
    }
}

impl LossBackward for Flex {
    fn loss_and_gradient(logits: FlexTensor, targets: &[u32], objective: Objective) -> ([FlexTensor; 2], FlexTensor) {
        let mut gradient = contiguous(logits);
        let rows = targets.len();
        let logits = values_mut(&mut gradient);
        let vocab = logits.len() / rows;
        let (z_loss, smoothing) = (objective.z_loss as f32, objective.label_smoothing as f32);
        let losses: Vec<[f64; 2]> = logits
            .par_chunks_mut(ROWS * vocab)
            .zip(targets.par_chunks(ROWS))
            .map(|(logits, targets)| chunk(logits, targets, 1.0 / rows as f32, z_loss, smoothing))
            .collect();
        let mean = |which: usize| losses.iter().map(|losses| losses[which]).sum::<f64>() / rows as f64;
        ([0, 1].map(|which| new(vec![mean(which) as f32], [1])), gradient)
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
    // The summed losses of the rows: what is minimised, and the cross-entropy. Each row of logits becomes
    // `weight * (softmax * (1 + 2 z ln(denominator)) - smoothed target)`.
    fn chunk(logits: &mut [f32], targets: &[u32], weight: f32, z_loss: f32, smoothing: f32) -> [f64; 2] {
        let vocab = logits.len() / targets.len();
        let evenly = smoothing / vocab as f32;
        let (mut extra, mut cross_entropy) = (0.0, 0.0);
        for (row, target) in logits.chunks_exact_mut(vocab).zip(targets) {
            let largest = simd::max(row);
            let shifted = row[*target as usize] - largest;
            // How far the target's logit stands above the mean.
            let above_mean = if smoothing > 0.0 {
                shifted - simd::sum([row], |[x]| x - largest) / vocab as f32
            } else {
                0.0
            };
            for x in row.iter_mut() {
                *x = simd::exp(*x - largest);
            }
            let total = simd::sum([row], |[x]| x);
            let log_denominator = total.ln() + largest;
            cross_entropy += (total.ln() - shifted) as f64;
            extra += (smoothing * above_mean + z_loss * log_denominator * log_denominator) as f64;
            let factor = weight / total * (1.0 + 2.0 * z_loss * log_denominator);
            for x in row.iter_mut() {
                *x *= factor;
            }
            if smoothing > 0.0 {
                for x in row.iter_mut() {
                    *x -= weight * evenly;
                }
            }
            row[*target as usize] -= weight * (1.0 - smoothing);
        }
        [cross_entropy + extra, cross_entropy]
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
    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: Vec<u32>,
        objective: Objective,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        match CrossEntropy.prepare::<C>([logits.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let ([minimised, cross_entropy], gradient) =
                    B::loss_and_gradient(logits.into_primitive(), &targets, objective);
                (prep.finish(gradient, minimised), Self::from_inner(cross_entropy))
            }
            OpsKind::UnTracked(prep) => {
                let (minimised, cross_entropy) = B::cross_entropy(logits.into_primitive(), targets, objective);
                (prep.finish(minimised), Self::from_inner(cross_entropy))
            }
        }
    }
}
