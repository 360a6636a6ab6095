//! The head and its loss in one operation, to save memory: the logits `[batch, time, vocab]` can be
//! larger than all other tensors together, so they are computed for some positions at a time.
//!
//! This works because the loss is a sum over positions. A piece's logits determine the gradient of
//! the head's input at these positions, and their share of the head's gradient. Both are computed
//! in the forward pass, while the logits exist, and kept for the backward ([Hsu et al.
//! 2024](https://arxiv.org/abs/2410.10989), section 3.2).

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{Shape, Slice, Tensor};

use crate::cross_entropy::{CrossEntropy, Loss, Objective, Scaled};
use crate::linear::Unembed;
use crate::operation::{Operation, outputs_of};

/// The loss of the logits of `hidden` `[batch, time, n_embd]` under `table` `[vocab, n_embd]`, over
/// `divisor`, as [`crate::unembed`] and [`crate::cross_entropy::loss_over`] give it. The logits of
/// at most `at_once` positions exist at a time. Both tensors have the type that the model computes
/// in.
///
/// # Panics
/// As [`crate::cross_entropy::loss`].
pub fn head_loss(
    hidden: Tensor<3>,
    table: Tensor<2>,
    targets: &[u32],
    objective: Objective,
    divisor: f64,
    at_once: usize,
) -> Loss {
    let operation = HeadLoss { targets: targets.to_vec(), objective, factor: 1.0 / divisor, at_once };
    let outputs = outputs_of(operation, [hidden.into_dispatch(), table.into_dispatch()]);
    let [objective, cross_entropy] = outputs.map(Tensor::<1>::from_dispatch);
    Loss { objective, cross_entropy }
}

#[derive(Clone, Debug)]
struct HeadLoss {
    targets: Vec<u32>,
    objective: Objective,
    factor: f64,
    at_once: usize,
}

/// Some of the positions.
struct Piece<B: Backend> {
    /// `[1, positions, n_embd]`.
    hidden: FloatTensor<B>,
    loss: CrossEntropy,
    /// Its fraction of all positions.
    share: f64,
}

impl HeadLoss {
    fn pieces<B: Backend>(&self, hidden: FloatTensor<B>) -> impl Iterator<Item = Piece<B>> {
        let (positions, n_embd) = (self.targets.len(), hidden.shape()[2]);
        let hidden = B::float_reshape(hidden, Shape::new([1, positions, n_embd]));
        (0..positions).step_by(self.at_once).map(move |first| {
            let targets = &self.targets[first..positions.min(first + self.at_once)];
            let share = targets.len() as f64 / positions as f64;
            let range = Slice::from(first..first + targets.len());
            Piece {
                hidden: B::float_slice(hidden.clone(), &[Slice::full(), range, Slice::full()]),
                // A piece's loss is the mean over its positions.
                loss: CrossEntropy::new(targets, self.objective, self.factor * share),
                share,
            }
        })
    }
}

/// Adds a piece's losses to the total. The objective already includes the factor `share`.
fn add<B: Backend>(
    losses: &mut Option<[FloatTensor<B>; 2]>,
    [objective, cross_entropy]: [FloatTensor<B>; 2],
    share: f64,
) {
    let cross_entropy = B::float_mul_scalar(cross_entropy, share.into());
    *losses = Some(match losses.take() {
        Some([a, b]) => [B::float_add(a, objective), B::float_add(b, cross_entropy)],
        None => [objective, cross_entropy],
    });
}

impl<B: Scaled> Operation<B, 2, 2> for HeadLoss
where
    Unembed: Operation<B, 2>,
    CrossEntropy: Operation<B, 1, 2, Kept = FloatTensor<B>>,
{
    /// The gradients of the inputs.
    type Kept = [FloatTensor<B>; 2];

    fn forward(&self, [hidden, table]: [FloatTensor<B>; 2]) -> ([FloatTensor<B>; 2], Self::Kept) {
        let shape = hidden.shape();
        let (mut losses, mut of_hidden, mut of_table) = (None, Vec::new(), None);
        for Piece { hidden, loss, share } in self.pieces::<B>(hidden) {
            let ([logits], kept) = Unembed.forward([hidden, table.clone()]);
            let (of_piece, of_logits) = loss.forward([logits]);
            let [dx, dtable] = Unembed.backward_onto(kept, of_logits, [None, of_table]);
            add::<B>(&mut losses, of_piece, share);
            of_hidden.push(dx);
            of_table = Some(dtable);
        }
        let (Some(losses), Some(of_table)) = (losses, of_table) else { unreachable!("a loss of no positions") };
        let of_hidden = B::float_reshape(B::float_cat(of_hidden, 1), shape);
        (losses, [of_hidden, of_table])
    }

    fn backward(&self, gradients: Self::Kept, dy: FloatTensor<B>) -> [FloatTensor<B>; 2] {
        gradients.map(|gradient| B::scaled(gradient, dy.clone()))
    }

    fn infer(&self, [hidden, table]: [FloatTensor<B>; 2]) -> [FloatTensor<B>; 2] {
        let mut losses = None;
        for Piece { hidden, loss, share } in self.pieces::<B>(hidden) {
            add::<B>(&mut losses, loss.infer(Unembed.infer([hidden, table.clone()])), share);
        }
        losses.unwrap_or_else(|| unreachable!("a loss of no positions"))
    }
}

#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod tests {
    use super::*;
    use crate::cross_entropy::plain;
    use crate::gpu::testing::{Inputs, device, same};
    use crate::plain::unembed;

    /// Chunks of one position, of several (the last one shorter), and a single chunk.
    #[test]
    fn pieces_are_the_whole() {
        let Some(device) = device() else { return };
        let inputs = Inputs::new([2, 15, 20], [1; 3], [50, 20], [1, 1], &device);
        let targets: Vec<u32> = (0..30).map(|place| place * 31 % 50).collect();
        let objective = Objective { z_loss: 1e-3, label_smoothing: 0.1 };
        for at_once in [1, 7, 30, 100] {
            let of = |loss: Loss| (loss.objective * 3.0).reshape([1, 1, 1]);
            same(
                "head_loss",
                2e-5,
                &inputs,
                |i| of(head_loss(i.x.clone(), i.matrix.clone(), &targets, objective, 2.0, at_once)),
                |i| of(plain(unembed(i.x.clone(), i.matrix.clone()), &targets, objective)) / 2.0,
            );
        }
    }
}
