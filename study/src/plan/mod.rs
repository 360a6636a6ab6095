//! Plans what to train on a text, on this device, in a given time.
//!
//! A plan is a configuration like any other, made in the one place that makes configurations
//! ([`Settings::resolve`](ember_training::config::Settings::resolve)). The differences: the
//! device's speed is measured ([`measure`], [`speed`]) instead of guessed, and several shapes are
//! resolved, of which the one with the lowest predicted loss ([`fit`]) that fits into memory is
//! kept. A key that the user set is the same in all of them.
//!
//! [`propose`] does this: `Planner::candidates` resolves the shapes, and [`measure::speed`] times a
//! few of them. `Planner::best` makes a `Planner::proposal` of each candidate, with the steps that
//! the time allows and the predicted loss, and keeps one. If there is time, the kept shape is timed
//! too, and its proposal is made again. Last, a run of which not even one step fits into the time is
//! refused.

mod candidate;
pub mod check;
pub mod fit;
pub mod measure;
mod picture;
mod planner;
mod proposal;
pub mod recipe;
pub mod speed;
pub mod text;
mod warnings;

pub use picture::fit_svg;
pub use proposal::{Proposal, Request};

use std::time::{Duration, Instant};

use ember_data::{prepare::Dataset, windows::WindowRule};
use ember_kernels::is_cpu;
use ember_model::device::Selected;
use itertools::Itertools;

use crate::error::Result;
use candidate::{Candidate, Sizes};
use ember_training::config::{ConfigError, DeviceKind, Settings, TextFacts, TrainConfig};
use ember_training::memory::prediction::Kernels;
use ember_training::run::device_kind;
use fit::Fit;
use measure::Limits;
use planner::{Planner, SHAPES};
use text::Statistics;

/// Time limits for measuring the device.
pub const MEASURING: Limits = Limits { timing: Duration::from_secs(18), compiling: Duration::from_secs(120) };

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
        speed.add(measure::time(&mut chosen.bench(dataset, selected, request.go_on)?, Duration::from_secs_f64(left))?);
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
