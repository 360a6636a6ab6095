//! How fast the device trains: short steps of a few shapes, timed.

use std::ops::Range;
use std::time::{Duration, Instant};

use burn::{module::Module, tensor::FloatDType};
use ember_data::prepare::Dataset;
use ember_data::windows::{TrainWindows, ValWindows};
use ember_model::{Gpt, GptConfig, device::Selected, kernels::is_cpu};

use crate::error::{Error, Result};
use ember_training::step::gradient::{Gradient, Passes, gradient};
use ember_training::step::optimizer::{Optimizer, clip_scale, global_norm};
use ember_training::{
    config::TrainConfig, config::precision::float_dtype, distributed::Alone, run::evaluate::evaluate, run::sample,
    run::windows::windows,
};

use super::speed::Timed;

/// Steps after the first that make a measurement, where there is time for so many.
const STEPS: u32 = 12;

/// A model with all that a step needs, in memory only.
pub struct Bench {
    config: TrainConfig,
    shape: GptConfig,
    windows: TrainWindows,
    val_windows: ValWindows,
    optimizer: Optimizer,
    gpt: Option<Gpt>,
    step: u64,
}

impl Bench {
    /// The model of this shape, which `config` makes, with its first weights.
    ///
    /// # Errors
    /// When the configuration does not fit the text.
    pub fn new(config: &TrainConfig, shape: &GptConfig, dataset: &Dataset, selected: &Selected) -> Result<Self> {
        Self::with_windows(config, shape, windows(config, dataset)?, selected)
    }

    /// The same on these windows.
    ///
    /// # Errors
    /// When the device fails.
    pub fn with_windows(
        config: &TrainConfig,
        shape: &GptConfig,
        (windows, val_windows): (TrainWindows, ValWindows),
        selected: &Selected,
    ) -> Result<Self> {
        let gpt = Gpt::new(shape, config.seed, &selected.device.clone().autodiff())?;
        let gpt = gpt.with_precision(float_dtype(config.precision));
        let optimizer = Optimizer::new(config);
        Ok(Self {
            config: config.clone(),
            shape: shape.clone(),
            windows,
            val_windows,
            optimizer,
            gpt: Some(gpt),
            step: 0,
        })
    }

    /// The model as it is.
    pub fn gpt(&self) -> Option<&Gpt> {
        self.gpt.as_ref()
    }

    /// The windows of the next step.
    pub fn windows(&self) -> (&TrainWindows, Range<u64>) {
        let count = self.config.windows_per_step() as u64;
        (&self.windows, self.step * count..(self.step + 1) * count)
    }

    /// The gradient of the next step.
    ///
    /// # Errors
    /// When the tokens cannot be read.
    pub fn gradient(&self) -> Result<Gradient> {
        let (windows, range) = self.windows();
        let passes = Passes::new(&self.config, self.step, 1.0);
        let gpt = self.gpt.as_ref().ok_or(Error::NoModel)?;
        Ok(gradient(gpt, windows, range, passes.on(&gpt.device()))?)
    }

    /// The step along a gradient, at a rate so small that the weights stay what they are.
    pub fn follow(&mut self, gradient: Gradient) {
        let Some(gpt) = self.gpt.take() else { return };
        let scale = clip_scale(global_norm(&gpt, &gradient.gradients), self.config.grad_clip);
        self.gpt = Some(self.optimizer.step(gpt, gradient.gradients, scale, 1e-12));
        self.step += 1;
    }

    /// Seconds that a whole step takes. The norm and the loss are read back, so that a GPU has done
    /// its work.
    ///
    /// # Errors
    /// As [`Self::gradient`].
    pub fn timed_step(&mut self) -> Result<f64> {
        let began = Instant::now();
        let gradient = self.gradient()?;
        self.follow(gradient);
        Ok(began.elapsed().as_secs_f64())
    }

    /// Times steps until `limit` has gone by, three at least where the device is not very slow.
    ///
    /// # Errors
    /// As [`Self::gradient`].
    pub fn time(&mut self, limit: Duration) -> Result<Timed> {
        let began = Instant::now();
        let first_s = self.timed_step()?;
        let (mut total_s, mut steps) = (0.0, 0);
        while steps < STEPS
            && (steps == 0 || began.elapsed() + Duration::from_secs_f64(total_s / f64::from(steps)) < limit)
        {
            total_s += self.timed_step()?;
            steps += 1;
        }
        Ok(Timed::new(&self.config, &self.shape, first_s, total_s / f64::from(steps)))
    }

    /// Seconds to evaluate one token, and to write one.
    ///
    /// # Errors
    /// When the model cannot score.
    pub fn time_looking(&self, dataset: &Dataset) -> Result<[f64; 2]> {
        let Some(gpt) = &self.gpt else { return Ok([0.0; 2]) };
        let plain = gpt.valid().with_precision(FloatDType::F32);
        let some = self.val_windows.evenly_spaced(4);
        let tokens = some.len() as f64 * some.context_length() as f64;
        if !is_cpu(&plain.device()) {
            evaluate(&plain, &some, &Alone, &|| false)?;
        }
        let began = Instant::now();
        evaluate(&plain, &some, &Alone, &|| false)?;
        let evaluate_s = began.elapsed().as_secs_f64() / tokens;
        let sampling = sample::sampling(dataset.manifest.marks.as_ref());
        let few = TrainConfig { sample_tokens: 8, sample_prompts: vec![String::new()], ..self.config.clone() };
        if !is_cpu(&plain.device()) {
            // Once for the kernels to be compiled.
            sample::samples(&plain, &dataset.tokenizer, sampling, &few, 0)?;
        }
        let began = Instant::now();
        sample::samples(&plain, &dataset.tokenizer, sampling, &few, 0)?;
        Ok([evaluate_s, began.elapsed().as_secs_f64() / 8.0])
    }
}
