//! The optimizers: AdamW, or Muon for the blocks' matrices with AdamW for the rest, each with
//! clipping by the global norm ([Pascanu et al. 2013](https://arxiv.org/abs/1211.5063)); and the
//! moving average of the weights.
//!
//! An optimizer's state is keyed by the parameter's name.

mod adamw;
mod average;
mod decision;
mod muon;
mod state;

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor};
use burn::{module::ParamId, optim::GradientsParams};
use ember_kernels::optimizer::{gpu, gpu_muon, sum_of_squares};
use ember_kernels::{gpu::tensor::cube, is_cpu};
use ember_model::{Gpt, GptConfig, Parameter, ParameterMapper};

pub use adamw::AdamWConfig;
pub use average::WeightAverage;
pub use decision::{Decided, Decision, Halt};
pub use muon::MuonConfig;

use crate::config::{OptimizerKind, TrainConfig, precision::float_dtype};
use crate::error::OptimizerError;
use state::{MOMENTUM, Moments, Rate};

/// An optimizer's hyperparameters, except the learning rate, which comes with each step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerConfig {
    /// AdamW's hyperparameters.
    pub adamw: AdamWConfig,
    /// Muon's, if it steps the blocks' matrices.
    pub muon: Option<MuonConfig>,
    /// Decay of the average of the weights; 0 if none is kept.
    pub ema_decay: f64,
}

impl OptimizerConfig {
    /// Muon's hyperparameters, if Muon steps the parameter `name`: a matrix of a block.
    fn muon_of(&self, name: &str, dimensions: usize) -> Option<MuonConfig> {
        self.muon.filter(|_| dimensions == 2 && name.starts_with("h."))
    }
}

impl From<&TrainConfig> for OptimizerConfig {
    /// The hyperparameters of a run's configuration.
    fn from(config: &TrainConfig) -> Self {
        let TrainConfig { beta1, beta2, epsilon, weight_decay, .. } = *config;
        let muon = MuonConfig {
            relative_rate: config.muon_learning_rate / config.learning_rate,
            momentum: config.muon_momentum,
            weight_decay,
            precision: float_dtype(config.precision),
        };
        let muon = (config.optimizer == OptimizerKind::Muon).then_some(muon);
        Self { adamw: AdamWConfig { beta1, beta2, epsilon, weight_decay }, muon, ema_decay: config.ema_decay }
    }
}

impl From<AdamWConfig> for OptimizerConfig {
    /// AdamW for everything, and no average.
    fn from(adamw: AdamWConfig) -> Self {
        Self { adamw, muon: None, ema_decay: 0.0 }
    }
}

/// The optimizer and its state.
#[derive(Clone, Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    moments: Moments,
    average: Option<WeightAverage>,
    steps: u64,
}

impl Optimizer {
    /// A new optimizer, before its first step.
    pub fn new(config: impl Into<OptimizerConfig>) -> Self {
        let config = config.into();
        Self {
            config,
            moments: Moments::default(),
            average: (config.ema_decay > 0.0).then(|| WeightAverage::new(config.ema_decay)),
            steps: 0,
        }
    }

    /// Number of values in the state: those of the moments and of the average.
    pub fn values(&self) -> usize {
        self.moments.values() + self.average.as_ref().map_or(0, WeightAverage::values)
    }

    /// The average of the weights, if one is kept.
    pub fn average(&self) -> Option<&WeightAverage> {
        self.average.as_ref()
    }

    /// Restores the average of a checkpoint: a model on a device without automatic differentiation.
    /// Does nothing if this optimizer keeps none.
    pub fn restore_average(&mut self, average: Gpt) {
        if let Some(kept) = &mut self.average {
            kept.gpt = Some(average);
        }
    }

    /// The model after one step along `gradients` times `scale`.
    pub fn step(&mut self, gpt: Gpt, gradients: GradientsParams, scale: f64, learning_rate: f64) -> Gpt {
        let device = gpt.device();
        let decision = (!is_cpu(&device)).then(|| Decision::take(scale, &device));
        self.step_by(gpt, gradients, Rate { learning_rate, gradient_scale: scale }, decision.as_ref())
    }

    /// Like [`Self::step`] on a GPU, but the device's `decision` says whether the step is taken and
    /// how far it is clipped; the host need not know.
    pub fn step_as_decided(
        &mut self,
        gpt: Gpt,
        gradients: GradientsParams,
        decision: &Decision,
        learning_rate: f64,
    ) -> Gpt {
        self.step_by(gpt, gradients, Rate { learning_rate, gradient_scale: 1.0 }, Some(decision))
    }

    /// Sets the step count back to `taken`, when the device did not take all steps given to it.
    pub fn rewind(&mut self, taken: u64) {
        self.steps = taken;
        if taken == 0
            && let Some(average) = &mut self.average
        {
            average.gpt = None;
        }
    }

    fn step_by(&mut self, gpt: Gpt, mut gradients: GradientsParams, rate: Rate, decision: Option<&Decision>) -> Gpt {
        self.steps += 1;
        let shape = gpt.config().clone();
        let on_gpu = decision.map(|_| Gathered::default());
        let mut step = Step { optimizer: self, gradients: &mut gradients, shape, rate, on_gpu };
        let gpt = gpt.map_parameters(&mut step);
        if let (Some(Gathered { adamw, muon }), Some(decision)) = (step.on_gpu, decision) {
            let values = cube(decision.values.clone());
            if let Some(config) = self.config.muon {
                gpu_muon::muon(muon, &values, &config.scalars(rate));
            }
            gpu::adamw(adamw, values, self.config.adamw.scalars(self.steps, rate, 1));
        }
        if let Some(average) = &mut self.average {
            average.follow(&gpt, self.steps, decision);
        }
        gpt
    }

    /// All moments with their names, for a checkpoint: AdamW's `first.h.0...` and `second.h.0...`,
    /// Muon's `momentum.h.0...`.
    pub fn stored(&self) -> Vec<(String, Vec<f32>)> {
        self.moments.stored()
    }

    /// Restores the state of an optimizer that was stored after `steps` steps.
    ///
    /// # Errors
    /// When another kind of optimizer was stored, or a parameter's moments are missing in `stored`
    /// or have another size.
    pub fn restore(
        &mut self,
        gpt: &Gpt,
        steps: u64,
        mut stored: BTreeMap<String, Vec<f32>>,
        device: &Device,
    ) -> Result<(), OptimizerError> {
        self.steps = steps;
        self.moments = Moments::default();
        if steps == 0 {
            return Ok(());
        }
        let was_muon = stored.keys().any(|name| name.split('.').next() == Some(MOMENTUM));
        if was_muon != self.config.muon.is_some() {
            let [was, is] = [was_muon, !was_muon].map(|muon| if muon { "muon" } else { "adamw" });
            return Err(OptimizerError::OtherKind { was, is });
        }
        for Parameter { name, shape, .. } in gpt.parameters() {
            let is_muons = self.config.muon_of(&name, shape.len()).is_some();
            for kind in if is_muons { &[MOMENTUM][..] } else { &adamw::KINDS } {
                self.moments.restore(kind, &name, shape.iter().product(), &mut stored, device)?;
            }
        }
        Ok(())
    }
}

/// The clipping factor for gradients with this global norm; a limit of 0 means no clipping.
pub fn clip_scale(norm: f64, limit: f64) -> f64 {
    // PyTorch's clip_grad_norm_: the 1e-6 keeps the scaled norm just below the limit.
    if limit > 0.0 { (limit / (norm + 1e-6)).min(1.0) } else { 1.0 }
}

/// The norm of all gradients together, summed in a fixed order (flex's own sum of a large tensor is
/// not repeatable).
pub fn global_norm(gpt: &Gpt, gradients: &GradientsParams) -> f64 {
    if !is_cpu(&gpt.device()) {
        return decision::norm(gpt, gradients);
    }
    let of_one = |Parameter { id, shape, .. }: Parameter| match shape.len() {
        1 => gradients.get::<1>(id).map(sum_of_squares),
        _ => gradients.get::<2>(id).map(sum_of_squares),
    };
    let squares: Vec<Tensor<1>> = gpt.parameters().into_iter().filter_map(of_one).collect();
    if squares.is_empty() {
        return 0.0;
    }
    let squares = Tensor::cat(squares, 0).into_data();
    squares.iter::<f32>().map(|square| square as f64).sum::<f64>().sqrt()
}

/// One step over all parameters.
struct Step<'a> {
    optimizer: &'a mut Optimizer,
    gradients: &'a mut GradientsParams,
    shape: GptConfig,
    rate: Rate,
    /// On a GPU: its parts, gathered for a few kernel launches.
    on_gpu: Option<Gathered>,
}

/// The parts of a step on a GPU, by optimizer.
#[derive(Default)]
struct Gathered {
    adamw: Vec<gpu::AdamWStep>,
    muon: Vec<gpu_muon::MuonStep>,
}

impl ParameterMapper for Step<'_> {
    fn map<const D: usize>(&mut self, name: &str, id: ParamId, parameter: Tensor<D>) -> Tensor<D> {
        let Some(gradient) = self.gradients.remove::<D>(id) else { return parameter };
        let Optimizer { config, moments, steps, .. } = &mut *self.optimizer;
        if let Some(muon) = config.muon_of(name, D) {
            let size = parameter.dims();
            let [matrix, gradient] = [parameter, gradient].map(|tensor| tensor.reshape([size[0], size[1]]));
            let Some(gathered) = &mut self.on_gpu else {
                return muon.update(moments, name, matrix, gradient, &self.shape, self.rate).reshape(size);
            };
            let (matrix, step) = muon.prepare(moments, name, matrix, gradient, &self.shape);
            gathered.muon.push(step);
            return matrix.reshape(size);
        }
        let Some(gathered) = &mut self.on_gpu else {
            return config.adamw.update(moments, name, parameter, gradient, *steps, self.rate);
        };
        let (parameter, step) = config.adamw.prepare(moments, name, parameter, gradient, self.rate);
        gathered.adamw.push(step);
        parameter
    }
}
