//! An exponential moving average of the weights ([Polyak and Juditsky
//! 1992](https://doi.org/10.1137/0330046) average all of them alike; the exponential form is
//! everyday practice): a copy that follows the trained weights slowly, which smooths out the noise
//! of single steps. It is evaluated and saved beside them and never trained on.

use std::collections::BTreeMap;

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use ember_kernels::gpu::tensor::{cube, float32, from_cube};
use ember_kernels::optimizer::{self as arithmetic, gpu};
use ember_model::{Gpt, ParameterMapper};

use super::decision::Decision;

/// The average, in float32, and its decay.
#[derive(Clone, Debug)]
pub struct WeightAverage {
    decay: f64,
    /// On a device without automatic differentiation; `None` before the first step.
    pub(super) gpt: Option<Gpt>,
}

impl WeightAverage {
    pub(super) fn new(decay: f64) -> Self {
        Self { decay, gpt: None }
    }

    /// The model with the averaged weights and the precision of `trained`; `None` before the first
    /// step.
    pub fn model(&self, trained: &Gpt) -> Option<Gpt> {
        self.gpt.clone().map(|gpt| gpt.with_precision(trained.precision()))
    }

    /// Number of values stored.
    pub fn values(&self) -> usize {
        self.gpt.as_ref().map_or(0, |gpt| gpt.config().parameters())
    }

    /// Moves the average towards the weights of `gpt` after step `step`, counted from 1. The first
    /// average is the first weights. On a GPU, `decision` says whether the step was taken.
    pub(super) fn follow(&mut self, gpt: &Gpt, step: u64, decision: Option<&Decision>) {
        let weights = gpt.valid();
        let Some(average) = self.gpt.take() else {
            self.gpt = Some(weights);
            return;
        };
        let mut current = ByName::default();
        weights.map_parameters(&mut current);
        let share = (1.0 - decay_at(step, self.decay)) as f32;
        let mut approach = Approach { weights: current, share, on_gpu: decision.map(|_| Vec::new()) };
        self.gpt = Some(average.map_parameters(&mut approach));
        if let (Some(pairs), Some(decision)) = (approach.on_gpu, decision) {
            gpu::follow(pairs, cube(decision.values.clone()), share);
        }
    }
}

/// The decay of the average at step `step`, counted from 1: small at first, so that the early
/// weights are forgotten quickly. TensorFlow's `ExponentialMovingAverage` with `num_updates` has
/// the same rule.
fn decay_at(step: u64, decay: f64) -> f64 {
    decay.min((1.0 + step as f64) / (10.0 + step as f64))
}

/// Flattened parameters by name.
#[derive(Default)]
struct ByName(BTreeMap<String, Tensor<1>>);

impl ParameterMapper for ByName {
    fn map<const D: usize>(&mut self, name: &str, _: ParamId, tensor: Tensor<D>) -> Tensor<D> {
        self.0.insert(name.to_owned(), tensor.clone().flatten(0, D - 1));
        tensor
    }
}

/// Moves each averaged parameter by `share` of the way towards its weight.
struct Approach {
    weights: ByName,
    share: f32,
    /// On a GPU: pairs of average and weight, gathered for one kernel launch.
    on_gpu: Option<Vec<[CubeTensor; 2]>>,
}

impl ParameterMapper for Approach {
    fn map<const D: usize>(&mut self, name: &str, _: ParamId, average: Tensor<D>) -> Tensor<D> {
        let Some(weights) = self.weights.0.remove(name) else { return average };
        if let Some(pairs) = &mut self.on_gpu {
            let average = gpu::own(average);
            pairs.push([average.clone(), float32(cube(weights))]);
            return from_cube(average);
        }
        let shape = average.dims();
        arithmetic::follow(average.flatten(0, D - 1), weights, self.share).reshape(shape)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::Device;
    use ember_model::GptConfig;
    use itertools::Itertools;

    use super::*;

    fn values(gpt: &Gpt) -> Vec<f32> {
        let mut all = Vec::new();
        gpt.for_each_parameter(&mut |_, _, values| all.extend(values));
        all
    }

    #[test]
    fn follows_as_the_formula_says() {
        let config = GptConfig::new(7, 4, 1, 2, 4);
        let device = Device::flex().autodiff();
        let weights: Vec<Gpt> = (0..4).map(|seed| Gpt::new(&config, seed, &device).unwrap()).collect();
        let mut average = WeightAverage::new(0.25);
        let mut want = values(&weights[0]);
        for (step, gpt) in (1..).zip(&weights) {
            average.follow(gpt, step, None);
            let decay = [1.0f32, 0.25, 0.25, 0.25][step as usize - 1]; // 3/12 = 0.25, then larger, up to the limit
            for (want, weight) in want.iter_mut().zip_eq(values(gpt)) {
                *want = decay * *want + (1.0 - decay) * weight;
            }
        }
        let got = values(&average.model(&weights[3]).unwrap());
        assert!(got.iter().zip_eq(&want).all(|(got, want)| (got - want).abs() < 1e-6));
        // Updating the average has not changed the weights.
        assert_eq!(values(&weights[3]), values(&Gpt::new(&config, 3, &device).unwrap()));
    }

    #[test]
    fn remembers_little_at_first() {
        assert_eq!(decay_at(1, 0.999), 2.0 / 11.0);
        assert_eq!(decay_at(80, 0.999), 0.9);
        assert_eq!(decay_at(100_000, 0.999), 0.999);
    }
}
