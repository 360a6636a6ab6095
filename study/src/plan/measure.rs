//! How fast the device trains: short steps of a few runs that are considered, timed.

use std::{ops::Range, time::Duration, time::Instant};

use burn::{module::Module, optim::GradientsParams, tensor::FloatDType};
use ember_data::{prepare::Dataset, windows::TrainWindows, windows::ValWindows};
use ember_kernels::is_cpu;
use ember_model::{Gpt, GptConfig, device::Selected};

use crate::error::{Error, Result};
use ember_training::config::{TrainConfig, precision::float_dtype};
use ember_training::memory::prediction::{Kernels, training};
use ember_training::run::evaluate::{evaluate, evaluate_confidence};
use ember_training::run::{sample, text::windows};
use ember_training::step::gradient::{Passes, gradient};
use ember_training::step::optimizer::{Optimizer, clip_scale, global_norm};
use ember_training::{distributed::Alone, memory::keeping::keep_where_there_is_room};

use super::speed::{Speed, Timed, step_flops};

/// Steps after the first that make a measurement, where there is time for so many.
const STEPS: u32 = 12;

/// A model with all that a step needs, in memory only.
pub struct Bench<'a> {
    config: TrainConfig,
    shape: GptConfig,
    windows: TrainWindows,
    val_windows: ValWindows,
    optimizer: Optimizer,
    /// The model as it is; none while a step is taken.
    pub gpt: Option<Gpt>,
    step: u64,
    go_on: &'a dyn Fn() -> bool,
}

impl<'a> Bench<'a> {
    /// The model of this shape, which `config` makes, with its first weights, on these windows;
    /// `go_on` is asked before each pass of a step.
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
        let (config, shape, optimizer) = (config.clone(), shape.clone(), Optimizer::new(config));
        Ok(Self { config, shape, windows, val_windows, optimizer, gpt, step: 0, go_on })
    }

    /// The windows of the next step.
    pub fn windows(&self) -> (&TrainWindows, Range<u64>) {
        let count = self.config.windows_per_step() as u64;
        (&self.windows, self.step * count..(self.step + 1) * count)
    }

    /// The gradient of the next step.
    ///
    /// # Errors
    /// When the tokens cannot be read, or the caller says to stop.
    pub fn gradient(&self) -> Result<GradientsParams> {
        let (windows, range) = self.windows();
        let passes = Passes::new(&self.config, self.step, 1.0);
        let gpt = self.gpt.as_ref().ok_or(Error::NoModel)?;
        let whole = gradient(gpt, windows, range, passes.on(&gpt.device()), &|| !(self.go_on)())?;
        Ok(whole.ok_or(Error::Stopped)?.gradients)
    }

    /// The step along a gradient, at a rate so small that the weights stay what they are.
    ///
    /// # Errors
    /// Where a step failed before.
    pub fn follow(&mut self, gradients: GradientsParams) -> Result<()> {
        let gpt = self.gpt.take().ok_or(Error::NoModel)?;
        let scale = clip_scale(global_norm(&gpt, &gradients), self.config.grad_clip);
        self.gpt = Some(self.optimizer.step(gpt, gradients, scale, 1e-12));
        self.step += 1;
        Ok(())
    }

    /// Seconds that a whole step takes. The norm and the loss are read back, so that a GPU has done
    /// its work.
    ///
    /// # Errors
    /// As [`Self::gradient`].
    pub fn timed_step(&mut self) -> Result<f64> {
        let began = Instant::now();
        self.follow(self.gradient()?)?;
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
        let TrainConfig { n_layer, n_embd, context_length, .. } = self.config;
        let (windows, flops) = (self.config.windows_per_step(), step_flops(&self.config, &self.shape));
        let step_s = total_s / f64::from(steps);
        Ok(Timed { n_layer, n_embd, context_length, windows, flops, first_s, step_s })
    }

    /// Seconds to evaluate one token, and to write one.
    ///
    /// # Errors
    /// When the model cannot score.
    fn time_looking(&self, dataset: &Dataset) -> Result<[f64; 2]> {
        let Some(gpt) = &self.gpt else { return Ok([0.0; 2]) };
        let plain = gpt.valid().with_precision(FloatDType::F32);
        let some = self.val_windows.evenly_spaced(4);
        let tokens = some.len() as f64 * some.context_length() as f64;
        let evaluate = || match self.config.calibrate {
            true => evaluate_confidence(&plain, &some, &Alone, &|| false).map(drop),
            false => evaluate(&plain, &some, &Alone, &|| false).map(drop),
        };
        if !is_cpu(&plain.device()) {
            evaluate()?;
        }
        let began = Instant::now();
        evaluate()?;
        let evaluate_s = began.elapsed().as_secs_f64() / tokens;
        let sampling = sample::sampling(&dataset.manifest, &dataset.tokenizer);
        let few = TrainConfig { sample_tokens: 8, sample_prompts: vec![String::new()], ..self.config.clone() };
        if !is_cpu(&plain.device()) {
            // Once for the kernels to be compiled.
            sample::samples(&plain, &dataset.tokenizer, sampling, &few, 0, &|| false)?;
        }
        let began = Instant::now();
        sample::samples(&plain, &dataset.tokenizer, sampling, &few, 0, &|| false)?;
        Ok([evaluate_s, began.elapsed().as_secs_f64() / 8.0])
    }
}

/// A step whose first run takes longer than this share of the time is not tried at other shapes: on
/// a GPU nearly all of it is the compiling of kernels, which every shape needs anew.
const SLOW_SHARE: f64 = 0.2;

/// A run that is considered.
pub struct Candidate {
    pub(super) config: TrainConfig,
    /// What this process computes of it.
    pub(super) share: TrainConfig,
    pub(super) shape: GptConfig,
    /// Bytes that training may take, where that is known.
    pub(super) available: Option<u64>,
}

impl Candidate {
    /// Model FLOPs of a step in this process.
    pub(super) fn flops(&self) -> f64 {
        step_flops(&self.share, &self.shape)
    }

    pub(super) fn bench<'a>(
        &self,
        dataset: &Dataset,
        selected: &Selected,
        go_on: &'a dyn Fn() -> bool,
    ) -> Result<Bench<'a>> {
        let predicted = training(&self.share, &self.shape, Kernels::on(&selected.device)).peak_bytes;
        keep_where_there_is_room(predicted, self.available);
        Bench::new(&self.share, &self.shape, windows(&self.share, dataset)?, selected, go_on)
    }
}

/// What tells candidates apart.
pub(super) fn sizes(config: &TrainConfig) -> [usize; 5] {
    let TrainConfig { n_layer, n_embd, context_length, batch_size, grad_accum_steps, .. } = *config;
    [n_layer, n_embd, context_length, batch_size, grad_accum_steps]
}

/// The most that a token by itself takes: its some forty kernels are launched within that on the slowest adapter
/// that was seen, a software one.
const MOST_TOKEN_S: f64 = 0.02;

/// As [`Bench::time_looking`], without trying what would compile for minutes: a forward pass is a
/// third of a step, and of one row's token takes as long as of a few where nearly all of it is
/// overhead.
fn guess_looking(timed: &Timed) -> [f64; 2] {
    let tokens = (timed.windows * timed.context_length) as f64;
    let forward_s = timed.step_s / 3.0;
    [forward_s / tokens, forward_s.min(MOST_TOKEN_S)]
}

/// Times a few `candidates`, from small to large, for at most `limit` together, the compiling of a
/// GPU's kernels not counted; `go_on` is asked before each pass.
///
/// # Errors
/// When not even the first can be trained, or `go_on` says to stop.
pub fn speed(
    candidates: &[&Candidate],
    dataset: &Dataset,
    selected: &Selected,
    limit: Duration,
    go_on: &dyn Fn() -> bool,
) -> Result<Speed> {
    let began = Instant::now();
    let mut speed = Speed::default();
    for (number, candidate) in candidates.iter().enumerate() {
        let left = limit.saturating_sub(began.elapsed());
        let share = left / (candidates.len() - number) as u32;
        // By the rate of the smaller ones, so that it will hardly take longer: two steps at least
        // must be possible.
        if number > 0 && 2.0 * speed.step_s(candidate.flops()) > left.as_secs_f64() {
            break;
        }
        let mut bench = candidate.bench(dataset, selected, go_on)?;
        let timed = bench.time(share)?;
        let slow = !is_cpu(&selected.device) && timed.first_s > SLOW_SHARE * limit.as_secs_f64();
        if number == 0 {
            [speed.evaluate_token_s, speed.sample_token_s] =
                if slow { guess_looking(&timed) } else { bench.time_looking(dataset)? };
        }
        speed.add(timed);
        if slow {
            break;
        }
    }
    speed.measured_s = began.elapsed().as_secs_f64();
    Ok(speed)
}
