//! A pass, and how it is computed in segments when memory is short: each segment's graph is built,
//! differentiated and freed before the next one's, so that the whole model's graph never exists.
//!
//! The chain rule makes this possible. The gradients of a segment's parameters and input depend
//! only on its input and on the gradient `dy` of its output `y`: `(y * dy).sum()` has the same
//! gradient as the whole model's loss.
//!
//! Activation checkpointing ([Chen et al. 2016](https://arxiv.org/abs/1604.06174), section 4) runs
//! the forward pass without a graph, keeps only each block's input, and rebuilds each block's graph
//! in the backward pass: one more forward pass, for memory that hardly grows with the depth.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Gradients, Int, Tensor};
use ember_model::Gpt;

use super::passes::{Passes, positions_of_a_piece};
use ember_kernels::cross_entropy::{Loss, loss_over};
use ember_kernels::head_loss;

/// One pass, which adds its gradient, divided by `divisor`, to `gradients`.
pub(super) struct Pass<'a> {
    pub(super) gpt: &'a Gpt,
    pub(super) targets: &'a [u32],
    pub(super) divisor: f64,
    pub(super) passes: &'a Passes,
    pub(super) gradients: &'a mut GradientsAccumulator<Gpt>,
}

impl Pass<'_> {
    /// Pass number `number` over `tokens` `[batch, time]` with activation checkpointing; returns
    /// its cross-entropy.
    ///
    /// A block's dropout is seeded by (seed, step, pass, block), so both forward passes draw the
    /// same mask.
    pub(super) fn by_block(&mut self, number: u64, tokens: Tensor<2, Int>) -> Tensor<1> {
        let Self { gpt, passes, .. } = *self;
        let n_layer = gpt.config().n_layer;
        let reseed = |segment: usize| passes.reseed(&[number, segment as u64]);

        // Forward: no parameter requires a gradient, so no graph is recorded; dropout still
        // applies.
        let frozen = gpt.clone().no_grad();
        reseed(n_layer);
        let mut x = frozen.embed(tokens.clone());
        let mut kept = Vec::new();
        for i in 0..n_layer {
            kept.push(x.clone());
            reseed(i);
            x = frozen.block(i, x);
        }

        // Backward: the last segment first.
        let x = x.require_grad();
        let Loss { objective, cross_entropy } = self.loss(gpt.final_norm(x.clone()));
        let mut dx = self.add_segment(x, objective.backward());
        for (i, x) in kept.into_iter().enumerate().rev() {
            let x = x.require_grad();
            reseed(i);
            let y = gpt.block(i, x.clone());
            dx = self.add_segment(x, backward(y, dx));
        }
        reseed(n_layer);
        self.add(backward(gpt.embed(tokens), dx));
        cross_entropy
    }

    /// The loss of `hidden` `[batch, time, n_embd]`, after `ln_f`; computed in pieces if there
    /// would be too many logits at once.
    pub(super) fn loss(&self, hidden: Tensor<3>) -> Loss {
        let Self { gpt, targets, divisor, passes, .. } = *self;
        let piece = positions_of_a_piece(targets.len(), gpt.config().vocab_size, passes.most_logits);
        let Some(piece) = piece else {
            return loss_over(gpt.logits_as_computed(hidden), targets, passes.objective, divisor);
        };
        let Some((hidden, table)) = gpt.factors_of_logits(hidden) else {
            unreachable!("packed weights are not trained")
        };
        head_loss(hidden, table, targets, passes.objective, divisor, piece)
    }

    /// Accumulates the gradients of a segment's parameters; returns that of its input `x`.
    fn add_segment(&mut self, x: Tensor<3>, gradients: Gradients) -> Tensor<3> {
        let Some(dx) = x.grad(&gradients) else { unreachable!("a segment's output depends on its input") };
        self.add(gradients);
        dx
    }

    /// Accumulates the gradients of parameters from one backward pass.
    pub(super) fn add(&mut self, gradients: Gradients) {
        self.gradients.accumulate(self.gpt, GradientsParams::from_grads(gradients, self.gpt));
    }
}

/// The gradients of everything that `y` depends on, given the gradient `dy` of `y`.
fn backward(y: Tensor<3>, dy: Tensor<3>) -> Gradients {
    (y * Tensor::from_inner(dy)).sum().backward()
}
