//! Plans what to train on a text, on this device, in a given time.
//!
//! A plan is a configuration like any other, made in the one place that makes configurations
//! ([`Settings::resolve`](ember_training::config::Settings::resolve)). The differences: the
//! device's speed is measured ([`measure`], [`speed`]) instead of guessed, and several shapes are
//! resolved, of which the one with the lowest predicted loss ([`fit`]) that fits into memory is
//! kept. A key that the user set is the same in all of them.
//!
//! [`propose`] does this in four steps: `Planner::candidates` resolves the shapes,
//! [`measure::speed`] times a few of them, `Planner::proposal` gives each the steps that the time
//! allows and predicts its loss, and `Planner::best` keeps one.

mod candidate;
pub mod check;
pub mod fit;
pub mod measure;
mod picture;
mod planner;
pub mod recipe;
pub mod speed;
pub mod text;
mod warnings;

pub use picture::fit_svg;

use std::time::{Duration, Instant};

use ember_data::{prepare::Dataset, windows::WindowRule};
use ember_kernels::is_cpu;
use ember_model::{GptConfig, device::Selected};
use itertools::Itertools;
use serde::Serialize;

use crate::error::Result;
use candidate::{Candidate, Sizes};
use ember_training::config::{ConfigError, DeviceKind, Settings, TextFacts, TrainConfig};
use ember_training::memory::prediction::{Kernels, Parts};
use ember_training::run::device_kind;
use fit::{Estimate, Fit};
use measure::Limits;
use planner::Planner;
use speed::Speed;
use text::Statistics;

/// Blocks, width and context of the candidates; the context grows as in the recipes.
const SHAPES: &[(usize, usize, usize)] = &[
    (2, 64, 64),
    (2, 96, 64),
    (2, 128, 64),
    (3, 128, 64),
    (4, 128, 64),
    (4, 192, 128),
    (6, 256, 128),
    (6, 384, 256),
    (8, 512, 512),
    (12, 768, 1024),
];

/// Time limits for measuring the device.
pub const MEASURING: Limits = Limits { timing: Duration::from_secs(18), compiling: Duration::from_secs(120) };

/// The request for a plan.
pub struct Request<'a> {
    /// The keys that the user set.
    pub settings: Settings,
    /// Seconds for everything: training, evaluations, checkpoints, samples.
    pub seconds: f64,
    /// Whether these seconds include measuring the device.
    pub measured_within: bool,
    /// Memory limit of training in bytes, if known.
    pub memory_bytes: Option<u64>,
    /// Limits for measuring the device.
    pub measuring: Limits,
    /// Number of processes that share every step. Each is assumed to have a device as fast as this
    /// one; their communication is not included.
    pub processes: usize,
    /// The model of a configuration.
    pub shape: &'a dyn Fn(&TrainConfig) -> GptConfig,
    /// Whether to go on; called before each pass of a measurement.
    pub go_on: &'a dyn Fn() -> bool,
}

/// The proposed run, and predictions about it.
#[derive(Clone, Debug, Serialize)]
pub struct Proposal {
    /// The run's configuration.
    pub config: TrainConfig,
    /// The keys that the user set.
    pub set: Vec<&'static str>,
    /// Statistics of the text.
    pub text: Statistics,
    /// The device's speed.
    pub speed: Speed,
    /// The model's shape.
    pub shape: GptConfig,
    /// Number of parameters.
    pub parameters: u64,
    /// Number of tokens trained on.
    pub tokens: u64,
    /// How many times the text is read.
    pub passes: f64,
    /// The predicted lowest validation loss of the run.
    pub loss: Estimate,
    /// Memory of a training step.
    pub memory: Parts,
    /// Seconds of a step.
    pub step_s: f64,
    /// Seconds of an evaluation with its checkpoint and sample.
    pub look_s: f64,
    /// Seconds of the whole run.
    pub seconds: f64,
    /// Reasons for the choices.
    pub reasons: Vec<String>,
    /// Warnings about the run.
    pub warnings: Vec<String>,
}

/// The proposal for a prepared text.
///
/// # Errors
/// When a set key does not fit the text, no candidate fits into the memory, not even one step fits
/// into the time, the device fails, or `go_on` says to stop.
pub fn propose(request: &Request, dataset: &Dataset, text: Statistics, selected: &Selected) -> Result<Proposal> {
    let planner = Planner {
        request,
        text,
        fit: Fit::new(&fit::points()?),
        device: device_kind(selected),
        kernels: Kernels::on(&selected.device),
        by_document: dataset.manifest.window_rule == WindowRule::DocumentStart,
    };
    let mut candidates = planner.candidates()?;
    let Limits { timing, compiling } = request.measuring;
    let limits = Limits { timing: timing.mul_f64(0.7), compiling };
    let to_measure = to_measure(&candidates, selected.gpu);
    let mut speed = measure::speed(&to_measure, dataset, selected, limits, request.go_on)?;
    let mut best = planner.best(&candidates, &speed)?;
    // If there is time, the chosen shape itself is measured, which decides the number of steps.
    let left = timing.as_secs_f64() - (speed.measured_s - speed.compiled_s);
    candidates.retain(|candidate| candidate.sizes() == Sizes::of(&best.config));
    let Some(chosen) = candidates.first() else { return Ok(best) };
    let known = speed.timed.iter().any(|timed| timed.flops == chosen.flops());
    let compiles_s = speed.timed.iter().map(|timed| timed.first_s).fold(f64::INFINITY, f64::min);
    let compiles_in_time = is_cpu(&selected.device) || speed.compiled_s + compiles_s < compiling.as_secs_f64();
    if !known && 4.0 * best.step_s < left && compiles_in_time {
        let began = Instant::now();
        speed.add(chosen.bench(dataset, selected, request.go_on)?.time(Duration::from_secs_f64(left))?);
        speed.measured_s += began.elapsed().as_secs_f64();
        best = planner.best(&candidates, &speed)?;
    }
    planner.require_step_fits(best, &speed)
}

/// The configurations that a plan would try with these settings, whatever the text: one for each
/// shape, smallest first, with the windows of one micro-batch; for an impossible one the error.
pub fn for_every_text(settings: &Settings, device: DeviceKind) -> Vec<Result<TrainConfig, ConfigError>> {
    let config = |(n_layer, n_embd, _): &(usize, usize, usize)| {
        let mut settings = settings.clone();
        settings.n_layer.get_or_insert(*n_layer);
        settings.n_embd.get_or_insert(*n_embd);
        settings.batch_size.get_or_insert(settings.micro_batch.unwrap_or(1));
        settings.max_steps.get_or_insert(1); // with which no learning rate is smaller
        Ok(settings.resolve(&TextFacts::NOTHING, device)?.0)
    };
    SHAPES.iter().map(config).collect()
}

/// The smallest candidate, and some with about 6, 40 and 250 times its work. On a GPU small ones
/// are all overhead and each one's kernels must be compiled, so there the most informative come
/// first.
fn to_measure(candidates: &[Candidate], on_gpu: bool) -> Vec<&Candidate> {
    let times: &[f64] = if on_gpu { &[40.0, 4000.0, 1.0, 400.0] } else { &[1.0, 6.0, 40.0, 250.0] };
    let Some(least) = candidates.first().map(Candidate::flops) else { return Vec::new() };
    let nearest = |times: f64| {
        let near = |candidate: &Candidate| (candidate.flops() / (times * least)).ln().abs();
        candidates.iter().min_by(|a, b| near(a).total_cmp(&near(b)))
    };
    times.iter().filter_map(|times| nearest(*times)).unique_by(|candidate| candidate.sizes()).collect()
}

#[cfg(test)]
mod tests;
