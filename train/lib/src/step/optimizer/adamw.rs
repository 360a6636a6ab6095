//! AdamW ([Loshchilov and Hutter 2019](https://arxiv.org/abs/1711.05101), algorithm 2).

use burn::tensor::Tensor;
use ember_kernels::gpu::tensor::{cube, float32, from_cube};
use ember_kernels::optimizer::gpu::{self, AdamWStep};
use ember_kernels::optimizer::{self as arithmetic, Update};

use super::state::{Moments, Rate};

/// AdamW's hyperparameters, except the learning rate, which comes with each step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the mean of the gradients.
    pub beta1: f64,
    /// Decay of the mean of the squared gradients.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Each step shrinks a matrix by this share of it times the learning rate; vectors (biases,
    /// LayerNorm) do not decay.
    pub weight_decay: f64,
}

/// The running means of the gradient and of its square.
pub(super) const KINDS: [&str; 2] = ["first", "second"];

impl AdamWConfig {
    /// Updates a parameter on the CPU; `step` counts from 1.
    pub(super) fn update<const D: usize>(
        self,
        moments: &mut Moments,
        name: &str,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        step: u64,
        rate: Rate,
    ) -> Tensor<D> {
        let shape = parameter.dims();
        let n: usize = shape.iter().product();
        let before = KINDS.map(|kind| moments.take(kind, name, &parameter));
        let update = self.scalars(step, rate, D);
        let [parameter, first, second] =
            arithmetic::adamw(parameter.reshape([n]), gradient.reshape([n]), before, update);
        for (kind, moment) in KINDS.into_iter().zip([first, second]) {
            moments.put(kind, name, moment);
        }
        parameter.reshape(shape)
    }

    /// The parameter on a GPU, and its part of the step that [`gpu::adamw`] will take, which
    /// changes the parameter in place.
    pub(super) fn prepare<const D: usize>(
        self,
        moments: &mut Moments,
        name: &str,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        rate: Rate,
    ) -> (Tensor<D>, AdamWStep) {
        let own_moments = KINDS.map(|kind| {
            let moment = gpu::own(moments.take(kind, name, &parameter));
            moments.put(kind, name, from_cube(moment.clone()));
            moment
        });
        let (parameter, keep) = (gpu::own(parameter), self.keep(rate, D));
        let gradient = float32(cube(gradient));
        (from_cube(parameter.clone()), AdamWStep { parameter, gradient, moments: own_moments, keep })
    }

    /// The scalars of a step, counted from 1, for a parameter with this many dimensions.
    pub(super) fn scalars(self, step: u64, rate: Rate, dimensions: usize) -> Update {
        let Self { beta1, beta2, epsilon, .. } = self;
        let t = step as f64;
        Update {
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            epsilon: epsilon as f32,
            step_size: (rate.learning_rate / (1.0 - beta1.powf(t))) as f32,
            root_correction: (1.0 - beta2.powf(t)).sqrt() as f32,
            keep: self.keep(rate, dimensions),
            scale: rate.gradient_scale as f32,
        }
    }

    /// The factor by which weight decay multiplies a parameter with this many dimensions.
    fn keep(self, rate: Rate, dimensions: usize) -> f32 {
        if dimensions >= 2 { (1.0 - rate.learning_rate * self.weight_decay) as f32 } else { 1.0 }
    }
}
