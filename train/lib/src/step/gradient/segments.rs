//! A pass, and how it is made in segments when memory is short: each segment's graph is made, gone
//! back through and freed before the next one's, so that the graph of the whole model never exists.
//!
//! What makes this possible is the chain rule. The gradient of a segment's parameters and of its
//! input follows from its input and the gradient of its output alone: with `dy` in hand, `(y *
//! dy).sum()` has the same gradient as the whole model's loss.
//!
//! Activation checkpointing ([Chen et al. 2016](https://arxiv.org/abs/1604.06174), section 4) goes
//! forward without a graph, keeps only what each block was given, and makes each block's graph anew
//! when the backward arrives at it: one more forward, for a memory that hardly grows with the depth.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Gradients, Int, Tensor};
use ember_model::Gpt;

use super::passes::Passes;
use ember_kernels::cross_entropy::{Loss, loss_over};
use ember_kernels::head_loss;

/// One pass, which adds its gradient, over `divisor`, to `gradients`.
pub(super) struct Pass<'a> {
    pub(super) gpt: &'a Gpt,
    pub(super) targets: &'a [u32],
    pub(super) divisor: f64,
    pub(super) passes: &'a Passes,
    pub(super) gradients: &'a mut GradientsAccumulator<Gpt>,
}

impl Pass<'_> {
    /// The pass numbered `number` over `tokens` `[batch, time]` with activation checkpointing;
    /// returns its cross-entropy.
    ///
    /// A block's dropout is named by (seed, step, pass, block), so that both forwards draw the
    /// same.
    pub(super) fn by_block(&mut self, number: u64, tokens: Tensor<2, Int>) -> Tensor<1> {
        let Self { gpt, passes, .. } = *self;
        let n_layer = gpt.config().n_layer;
        let reseed = |segment: usize| passes.reseed(&[number, segment as u64]);

        // Forward: no parameter wants a gradient, so nothing is recorded; dropout acts all the
        // same.
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
        let mut dx = self.add_but(x, objective.backward());
        for (i, x) in kept.into_iter().enumerate().rev() {
            let x = x.require_grad();
            reseed(i);
            let y = gpt.block(i, x.clone());
            dx = self.add_but(x, backward(y, dx));
        }
        reseed(n_layer);
        self.add(backward(gpt.embed(tokens), dx));
        cross_entropy
    }

    /// The loss of `hidden` `[batch, time, n_embd]`, after `ln_f`; where there would be too many logits
    /// at once, piece by piece.
    pub(super) fn loss(&self, hidden: Tensor<3>) -> Loss {
        let Self { gpt, targets, divisor, passes, .. } = *self;
        let vocab = gpt.config().vocab_size;
        let (positions, at_once) = (targets.len(), passes.most_logits / vocab);
        if positions <= at_once {
            return loss_over(gpt.logits_as_computed(hidden), targets, passes.objective, divisor);
        }
        let Some((hidden, table)) = gpt.factors_of_logits(hidden) else {
            unreachable!("packed weights are not trained")
        };
        // Pieces of one size: a small last one would cost nearly as much as the others.
        let pieces = positions.div_ceil(at_once.max(1));
        head_loss(hidden, table, targets, passes.objective, divisor, positions.div_ceil(pieces))
    }

    /// Adds the gradients of a segment's parameters; that of its input `x` is returned.
    fn add_but(&mut self, x: Tensor<3>, of_segment: Gradients) -> Tensor<3> {
        let Some(dx) = x.grad(&of_segment) else { unreachable!("a segment's output depends on its input") };
        self.add(of_segment);
        dx
    }

    /// Adds the gradients of parameters that a backward has made.
    pub(super) fn add(&mut self, made: Gradients) {
        self.gradients.accumulate(self.gpt, GradientsParams::from_grads(made, self.gpt));
    }
}

/// The gradients of all that `y` was made of, given that of `y`.
fn backward(y: Tensor<3>, dy: Tensor<3>) -> Gradients {
    (y * Tensor::from_inner(dy)).sum().backward()
}
