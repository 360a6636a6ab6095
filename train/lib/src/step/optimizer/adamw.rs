//! AdamW ([Loshchilov and Hutter 2019](https://arxiv.org/abs/1711.05101), algorithm 2).

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use ember_kernels::gpu::tensor::{cube, float32, from_cube};
use ember_kernels::optimizer::gpu::{self, AdamWStep};
use ember_kernels::optimizer::{self as arithmetic, Update};

use super::state::{Rate, Stored, StoredTensor, flat_values};
use crate::error::OptimizerError;

/// What AdamW is told once; the learning rate comes with each step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the mean of the gradients.
    pub beta1: f64,
    /// Decay of the mean of the squared gradients.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Share of a matrix, times the learning rate, that each step takes away; vectors (biases,
    /// LayerNorm) do not decay.
    pub weight_decay: f64,
}

/// One parameter's running means, flat, of the gradient and of its square.
#[derive(Clone, Debug)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// AdamW and the moments of the parameters that it steps.
#[derive(Clone, Debug)]
pub struct AdamW {
    pub(super) config: AdamWConfig,
    moments: BTreeMap<String, Moments>,
}

impl AdamW {
    pub(super) fn new(config: AdamWConfig) -> Self {
        Self { config, moments: BTreeMap::new() }
    }

    /// The parameter, on the CPU, after the step numbered `step`, from 1.
    pub(super) fn update<const D: usize>(
        &mut self,
        name: &str,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        step: u64,
        rate: Rate,
    ) -> Tensor<D> {
        let shape = parameter.dims();
        let n: usize = shape.iter().product();
        let Moments { first, second } = self.take_moments(name, &parameter);
        let update = self.numbers(step, rate, D);
        let [parameter, first, second] =
            arithmetic::adamw(parameter.reshape([n]), gradient.reshape([n]), [first, second], update);
        self.moments.insert(name.to_owned(), Moments { first, second });
        parameter.reshape(shape)
    }

    /// The parameter, on a GPU, and its part of the step that [`gpu::adamw`] is to take: it is
    /// changed in place then.
    pub(super) fn prepare<const D: usize>(
        &mut self,
        name: &str,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        rate: Rate,
    ) -> (Tensor<D>, AdamWStep) {
        let Moments { first, second } = self.take_moments(name, &parameter);
        let parameter = gpu::own(parameter);
        let moments = [first, second].map(gpu::own);
        let [first, second] = moments.each_ref().map(|moment| from_cube(moment.clone()));
        self.moments.insert(name.to_owned(), Moments { first, second });
        let keep = self.keep(rate, D);
        (from_cube(parameter.clone()), AdamWStep { parameter, gradient: float32(cube(gradient)), moments, keep })
    }

    /// The moments of a parameter: zero before its first step.
    fn take_moments<const D: usize>(&mut self, name: &str, parameter: &Tensor<D>) -> Moments {
        let n = parameter.dims().iter().product::<usize>();
        let zeros = || Tensor::<1>::zeros([n], &parameter.device());
        self.moments.remove(name).unwrap_or_else(|| Moments { first: zeros(), second: zeros() })
    }

    /// The numbers of the step numbered `step`, from 1, for a parameter of so many dimensions.
    pub(super) fn numbers(&self, step: u64, rate: Rate, dimensions: usize) -> Update {
        let AdamWConfig { beta1, beta2, epsilon, .. } = self.config;
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

    /// What weight decay leaves of a parameter of so many dimensions.
    fn keep(&self, rate: Rate, dimensions: usize) -> f32 {
        if dimensions >= 2 { (1.0 - rate.learning_rate * self.config.weight_decay) as f32 } else { 1.0 }
    }

    /// Values remembered.
    pub(super) fn values(&self) -> usize {
        self.moments.values().map(|moments| 2 * moments.first.dims()[0]).sum()
    }

    /// Every moment by name (`first.h.0...`, `second.h.0...`).
    pub(super) fn stored(&self) -> impl Iterator<Item = StoredTensor> {
        self.moments.iter().flat_map(|(name, moments)| {
            [
                (format!("first.{name}"), flat_values(&moments.first)),
                (format!("second.{name}"), flat_values(&moments.second)),
            ]
        })
    }

    /// Takes up the stored moments of the parameter `name` of `n` values.
    pub(super) fn restore(&mut self, name: &str, n: usize, stored: &mut Stored) -> Result<(), OptimizerError> {
        let moments = Moments { first: stored.take("first", name, n)?, second: stored.take("second", name, n)? };
        self.moments.insert(name.to_owned(), moments);
        Ok(())
    }
}
