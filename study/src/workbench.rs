//! Steps of training on a model of its own, for whatever times or measures them.

use std::{ops::Range, time::Instant};

use burn::optim::GradientsParams;
use ember_data::windows::{TrainWindows, ValWindows};
use ember_kernels::is_cpu;
use ember_model::{Gpt, GptConfig, device::Selected};

use crate::error::{Error, Result, proceed_if};
use crate::stepper::Stepper;
use ember_training::config::{TrainConfig, precision::float_dtype};
use ember_training::step::gradient::{self, Passes};

/// A model with everything that a step needs, in memory only.
pub struct Bench<'a> {
    stepper: Stepper,
    pub(crate) shape: GptConfig,
    windows: TrainWindows,
    pub(crate) val_windows: ValWindows,
    /// The current model; `None` while a step is taken.
    pub gpt: Option<Gpt>,
    pub(crate) on_gpu: bool,
    step: u64,
    go_on: &'a dyn Fn() -> bool,
}

impl<'a> Bench<'a> {
    /// The model of this shape, which `config` describes, with its initial weights, on these
    /// windows; `go_on` is called before each pass of a step.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(
        config: &TrainConfig,
        shape: &GptConfig,
        (windows, val_windows): (TrainWindows, ValWindows),
        selected: &Selected,
        go_on: &'a dyn Fn() -> bool,
    ) -> Result<Self> {
        let gpt = Gpt::new(shape, config.seed, &selected.device.clone().autodiff())?;
        let gpt = Some(gpt.with_precision(float_dtype(config.precision)));
        let (stepper, shape, on_gpu) = (Stepper::new(config), shape.clone(), !is_cpu(&selected.device));
        Ok(Self { stepper, shape, windows, val_windows, gpt, on_gpu, step: 0, go_on })
    }

    /// How training takes a step.
    pub fn config(&self) -> &TrainConfig {
        &self.stepper.config
    }

    /// The windows of the next step.
    pub fn windows(&self) -> (&TrainWindows, Range<u64>) {
        let count = self.stepper.config.windows_per_step() as u64;
        (&self.windows, self.step * count..(self.step + 1) * count)
    }

    /// How they go through the model.
    ///
    /// # Errors
    /// When an earlier step failed.
    pub fn passes(&self) -> Result<Passes> {
        Ok(self.stepper.passes(self.gpt.as_ref().ok_or(Error::NoModel)?, self.step))
    }

    /// Asks whether to go on, before each pass.
    ///
    /// # Errors
    /// When `go_on` says to stop.
    pub fn proceed(&self) -> Result<()> {
        proceed_if((self.go_on)())
    }

    /// The gradient of the next step.
    ///
    /// # Errors
    /// When the tokens cannot be read, or `go_on` says to stop.
    pub fn gradient(&self) -> Result<GradientsParams> {
        let (windows, range) = self.windows();
        let gpt = self.gpt.as_ref().ok_or(Error::NoModel)?;
        let whole = gradient::of_windows(gpt, windows, range, self.passes()?, &|| !(self.go_on)())?;
        Ok(whole.ok_or(Error::Stopped)?.gradients)
    }

    /// Takes a step along a gradient, which does not change the weights. Returns false if the
    /// gradient must be computed again, because it overflowed in float16: then no step is taken.
    ///
    /// # Errors
    /// When an earlier step failed.
    pub fn follow(&mut self, gradients: GradientsParams) -> Result<bool> {
        let gpt = self.gpt.take().ok_or(Error::NoModel)?;
        let (gpt, is_taken) = self.stepper.follow(gpt, gradients);
        self.gpt = Some(gpt);
        self.step += u64::from(is_taken);
        Ok(is_taken)
    }

    /// Seconds of a whole step. The norm and the loss are read back, so a GPU has finished.
    ///
    /// # Errors
    /// As [`Self::gradient`].
    pub fn timed_step(&mut self) -> Result<f64> {
        let began = Instant::now();
        while !self.follow(self.gradient()?)? {}
        Ok(began.elapsed().as_secs_f64())
    }
}
