//! A pass in segments, for when memory is short: each segment's graph is made, gone back through
//! and freed before the next one's, so that the graph of the whole model never exists.
//!
//! What makes this possible is the chain rule. The gradient of a segment's parameters and of its
//! input follows from its input and the gradient of its output alone: with `dy` in hand, `(y *
//! dy).sum()` has the same gradient as the whole model's loss.
//!
//! Two places are worth it. Activation checkpointing ([Chen et al.
//! 2016](https://arxiv.org/abs/1604.06174), section 4) goes forward without a graph, keeps only
//! what each block was given, and makes each block's graph anew when the backward arrives at it:
//! one more forward, for a memory that hardly grows with the depth. And the head with its loss,
//! whose logits `[batch, time, vocab]` can be larger than all else together, goes through the
//! positions piece by piece.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Gradients, Int, Tensor};
use ember_model::Gpt;

use super::passes::Passes;
use ember_kernels::cross_entropy::{Loss, loss_over};

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
        let hidden = gpt.final_norm(x.clone());
        let (cross_entropy, dy) = self.head(hidden.clone().detach());
        let mut dx = self.back(x, hidden, dy);
        for (i, x) in kept.into_iter().enumerate().rev() {
            let x = x.require_grad();
            reseed(i);
            let y = gpt.block(i, x.clone());
            dx = self.back(x, y, dx);
        }
        reseed(n_layer);
        self.add(backward(gpt.embed(tokens), dx));
        cross_entropy
    }

    /// The pass whose blocks have their graph as usual, and only the head and the loss go piece by
    /// piece; returns its cross-entropy.
    pub(super) fn head_by_piece(&mut self, tokens: Tensor<2, Int>) -> Tensor<1> {
        let hidden = self.gpt.hidden(tokens);
        let (cross_entropy, dy) = self.head(hidden.clone().detach());
        self.add(backward(hidden, dy));
        cross_entropy
    }

    /// The cross-entropy of `hidden` `[batch, time, n_embd]` (after `ln_f`, without a graph), and
    /// the gradient of the objective with respect to it; the head's own gradient is added.
    fn head(&mut self, hidden: Tensor<3>) -> (Tensor<1>, Tensor<3>) {
        let Self { gpt, targets, divisor, passes, .. } = *self;
        let shape = hidden.dims();
        let (positions, n_embd) = (shape[0] * shape[1], shape[2]);
        let at_once = (passes.most_logits / gpt.config().vocab_size).max(1);
        let hidden = hidden.reshape([1, positions, n_embd]);
        let (mut cross_entropies, mut d_hidden) = (Vec::new(), Vec::new());
        for first in (0..positions).step_by(at_once) {
            let length = at_once.min(positions - first);
            // Each piece's loss is a mean over its own positions.
            let share = length as f64 / positions as f64;
            let piece = hidden.clone().narrow(1, first, length).require_grad();
            let logits = gpt.logits_as_computed(piece.clone());
            let targets = &targets[first..first + length];
            let Loss { objective, cross_entropy } = loss_over(logits, targets, passes.objective, divisor / share);
            let of_piece = objective.backward();
            d_hidden.extend(piece.grad(&of_piece));
            self.add(of_piece);
            cross_entropies.push(cross_entropy * share);
        }
        let cross_entropy = Tensor::cat(cross_entropies, 0).sum();
        (cross_entropy, Tensor::cat(d_hidden, 1).reshape(shape))
    }

    /// Goes back through one segment: from the gradient `dy` of its output `y` to that of its input
    /// `x`, which is returned; those of its parameters are added.
    fn back(&mut self, x: Tensor<3>, y: Tensor<3>, dy: Tensor<3>) -> Tensor<3> {
        let of_segment = backward(y, dy);
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
