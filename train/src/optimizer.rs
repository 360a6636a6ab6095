//! AdamW ([Loshchilov and Hutter 2019](https://arxiv.org/abs/1711.05101), algorithm 2) with global-norm clipping
//! ([Pascanu et al. 2013](https://arxiv.org/abs/1211.5063)); its moments are keyed by the parameter's name.

mod kernel;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use burn::backend::Dispatch;
use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use ember_model::kernels::is_cpu;
use ember_model::{Gpt, ParameterMapper};

use kernel::{OptimizerOps, Update};

/// What AdamW is told once; the learning rate comes with each step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the mean of the gradients.
    pub beta1: f64,
    /// Decay of the mean of the squared gradients.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Share of a matrix, times the learning rate, that each step takes away; vectors (biases, LayerNorm) do not decay.
    pub weight_decay: f64,
}

/// One parameter's running means, flat, of the gradient and of its square.
#[derive(Clone, Debug)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The optimizer and all that it remembers.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    moments: BTreeMap<String, Moments>,
    steps: u64,
}

/// One stored moment: name, values.
pub type StoredMoment = (String, Vec<f32>);

impl AdamW {
    /// An optimizer that has not stepped yet.
    pub fn new(config: AdamWConfig) -> Self {
        Self { config, moments: BTreeMap::new(), steps: 0 }
    }

    /// Its numbers.
    pub fn config(&self) -> AdamWConfig {
        self.config
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The model after one step along `gradients` times `scale`.
    pub fn step(&mut self, gpt: Gpt, mut gradients: GradientsParams, scale: f64, learning_rate: f64) -> Gpt {
        self.steps += 1;
        let mut step = Step { optimizer: self, gradients: &mut gradients, learning_rate, scale };
        gpt.map_parameters(&mut step)
    }

    /// Every moment by name (`first.h.0...`, `second.h.0...`), to be stored.
    pub fn stored(&self) -> Vec<StoredMoment> {
        let values = |tensor: &Tensor<1>| tensor.clone().into_data().iter::<f32>().collect::<Vec<_>>();
        let each = self.moments.iter().flat_map(|(name, moments)| {
            [(format!("first.{name}"), values(&moments.first)), (format!("second.{name}"), values(&moments.second))]
        });
        each.collect()
    }

    /// Takes up where an optimizer that had taken `steps` steps was stored.
    ///
    /// # Errors
    /// When a parameter of `gpt` has no moments in `stored`, or of another size.
    pub fn restore(
        &mut self,
        gpt: &Gpt,
        steps: u64,
        mut stored: BTreeMap<String, Vec<f32>>,
        device: &Device,
    ) -> Result<()> {
        self.steps = steps;
        self.moments.clear();
        if steps == 0 {
            return Ok(());
        }
        for parameter in gpt.parameters() {
            let n: usize = parameter.shape.iter().product();
            let mut tensor = |kind: &str| {
                let values = stored.remove(&format!("{kind}.{}", parameter.name)).unwrap_or_default();
                ensure!(
                    values.len() == n,
                    "the stored optimizer has no {kind} moment of size {n} for {}",
                    parameter.name
                );
                Ok(Tensor::<1>::from_data(TensorData::new(values, [n]), device))
            };
            let moments = Moments { first: tensor("first")?, second: tensor("second")? };
            self.moments.insert(parameter.name, moments);
        }
        Ok(())
    }
}

/// What clipping multiplies gradients of this global norm by; a limit of 0 is none.
pub fn clip_scale(norm: f64, limit: f64) -> f64 {
    // PyTorch's clip_grad_norm_: the 1e-6 keeps the scaled norm just below the limit.
    if limit > 0.0 { (limit / (norm + 1e-6)).min(1.0) } else { 1.0 }
}

/// The norm of all gradients together, summed in a fixed order (flex's own sum of a large tensor is not repeatable).
pub fn global_norm(gpt: &Gpt, gradients: &GradientsParams) -> f64 {
    let mut squares: Vec<Tensor<1>> = Vec::new();
    for parameter in gpt.parameters() {
        let square = match parameter.shape.len() {
            1 => square::<1>(gradients, parameter.id),
            _ => square::<2>(gradients, parameter.id),
        };
        squares.extend(square);
    }
    if squares.is_empty() {
        return 0.0;
    }
    // One read back from the device for all of them.
    let squares = Tensor::cat(squares, 0).into_data();
    squares.iter::<f32>().map(|square| square as f64).sum::<f64>().sqrt()
}

/// The sum of the squares of one gradient.
fn square<const D: usize>(gradients: &GradientsParams, id: ParamId) -> Option<Tensor<1>> {
    let gradient = gradients.get::<D>(id)?;
    Some(if is_cpu(&gradient.device()) {
        Tensor::from_dispatch(<Dispatch as OptimizerOps>::sum_of_squares(gradient.into_dispatch()))
    } else {
        gradient.powi_scalar(2).sum()
    })
}

/// One step over all parameters.
struct Step<'a> {
    optimizer: &'a mut AdamW,
    gradients: &'a mut GradientsParams,
    learning_rate: f64,
    /// What clipping multiplies the gradients by.
    scale: f64,
}

impl ParameterMapper for Step<'_> {
    fn map<const D: usize>(&mut self, name: &str, id: ParamId, parameter: Tensor<D>) -> Tensor<D> {
        let Some(gradient) = self.gradients.remove::<D>(id) else { return parameter };
        let shape = parameter.dims();
        let n: usize = shape.iter().product();
        let zeros = || Tensor::<1>::zeros([n], &parameter.device());
        let moments =
            self.optimizer.moments.remove(name).unwrap_or_else(|| Moments { first: zeros(), second: zeros() });
        let AdamWConfig { beta1, beta2, epsilon, weight_decay, .. } = self.optimizer.config;
        let t = self.optimizer.steps as f64;
        let update = Update {
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            epsilon: epsilon as f32,
            step_size: (self.learning_rate / (1.0 - beta1.powf(t))) as f32,
            root_correction: (1.0 - beta2.powf(t)).sqrt() as f32,
            keep: if D >= 2 { (1.0 - self.learning_rate * weight_decay) as f32 } else { 1.0 },
            scale: self.scale as f32,
        };
        let (parameter, moments) = apply(parameter.reshape([n]), gradient.reshape([n]), moments, update);
        self.optimizer.moments.insert(name.to_owned(), moments);
        parameter.reshape(shape)
    }
}

fn apply(parameter: Tensor<1>, gradient: Tensor<1>, moments: Moments, update: Update) -> (Tensor<1>, Moments) {
    let Moments { first, second } = moments;
    if is_cpu(&parameter.device()) {
        let (parameter, first, second) = <Dispatch as OptimizerOps>::adamw(
            parameter.into_dispatch(),
            gradient.into_dispatch(),
            first.into_dispatch(),
            second.into_dispatch(),
            update,
        );
        let moments = Moments { first: Tensor::from_dispatch(first), second: Tensor::from_dispatch(second) };
        return (Tensor::from_dispatch(parameter), moments);
    }
    let gradient = gradient * update.scale;
    let first = first * update.beta1 + gradient.clone() * (1.0 - update.beta1);
    let second = second * update.beta2 + gradient.powi_scalar(2) * (1.0 - update.beta2);
    let denominator = second.clone().sqrt() / update.root_correction + update.epsilon;
    let parameter = parameter * update.keep - first.clone() / denominator * update.step_size;
    (parameter, Moments { first, second })
}
