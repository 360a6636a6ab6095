//! Plans what to train on a text, on this device, in a given time.
//!
//! A plan is a configuration like any other, made in the one place that makes configurations
//! ([`Settings::resolve`](ember_training::config::Settings::resolve)). The differences: the
//! device's speed is measured ([`measure`], [`speed`]) instead of guessed, and several shapes are
//! resolved, of which the one with the lowest predicted loss ([`fit`]) that fits into memory is
//! kept. A key that the user set is the same in all of them.

pub mod check;
pub mod fit;
pub mod measure;
mod picture;
pub mod recipe;
pub mod speed;
pub mod text;

pub use picture::fit_svg;

use std::time::{Duration, Instant};

use ember_data::{prepare::Dataset, windows::WindowRule};
use ember_kernels::is_cpu;
use ember_model::{GptConfig, device::Selected};
use itertools::{Itertools, iproduct};
use serde::Serialize;

use crate::error::{Error, Result};
use ember_training::config::{
    ConfigError, DeviceKind, MAX_PASSES_OF_LARGE, OptimizerKind, Settings, TextFacts, TrainConfig, fitting_context,
    keys, most_steps,
};
use ember_training::memory::fit::{Undecided, fit_to_memory, share_of};
use ember_training::memory::prediction::{Kernels, Parts, training};
use ember_training::run::{device_kind, time_budget::Pace};
use ember_training::{note::Note, units::duration, units::grouped, units::short};
use fit::{Estimate, Fit, Run};
use measure::{Candidate, Limits, sizes};
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

/// Tokens per step of the candidates.
const TOKENS_PER_STEP: &[usize] = &[1024, 2048, 4096, 8192, 16384, 32768];

/// Steps of every candidate until its own number is chosen. What is compared before that, sizes and
/// memory, does not depend on it.
const PROVISIONAL_STEPS: u64 = 1000;

/// A shorter run would hardly leave its warm-up.
const MIN_PLANNED_STEPS: u64 = 60;

/// With more parameters per token of the text, a model overfits before it has learned what the
/// formula predicts: on 100 KB, one half as wide was as good in a third of the time
/// (bench/LEARNING.md).
const MAX_PARAMETERS_A_TOKEN: f64 = 10.0;

/// Time limits for measuring the device.
pub const MEASURING: Limits = Limits { timing: Duration::from_secs(18), compiling: Duration::from_secs(120) };

/// The minimal share of its time for which a run is planned, however long measuring took.
const MIN_SHARE: f64 = 0.2;

/// The maximal share of its time that a run spends on looks, if it has more than one.
const LOOKING_SHARE: f64 = 0.25;

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
    candidates.retain(|candidate| sizes(&candidate.config) == sizes(&best.config));
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

/// The common data of all candidates.
struct Planner<'a> {
    request: &'a Request<'a>,
    text: Statistics,
    fit: Fit,
    device: DeviceKind,
    kernels: Kernels,
    /// Whether windows begin where documents do, so that the context follows the documents' length.
    by_document: bool,
}

impl Planner<'_> {
    /// One candidate for each shape and batch size that the set keys allow and that fits into
    /// memory, smallest step first; the number of steps is still open.
    fn candidates(&self) -> Result<Vec<Candidate>> {
        let (candidates, refused): (Vec<_>, Vec<_>) = iproduct!(SHAPES, TOKENS_PER_STEP)
            .map(|((n_layer, n_embd, context), tokens)| {
                let context = if self.by_document { (*context).clamp(96, 128) } else { *context };
                let context = fitting_context(context, &self.text.facts());
                let batch_size = (tokens / context).max(1).next_multiple_of(self.request.processes);
                self.candidate([*n_layer, *n_embd, context, batch_size], PROVISIONAL_STEPS, None)
            })
            .partition_result();
        // The first one rejected is the smallest.
        if let (true, Some(error)) = (candidates.is_empty(), refused.into_iter().next()) {
            return Err(error);
        }
        let candidates = candidates.into_iter().map(|(candidate, _)| candidate);
        let mut candidates: Vec<Candidate> = candidates.unique_by(|candidate| sizes(&candidate.config)).collect();
        candidates.sort_by(|a, b| a.flops().total_cmp(&b.flops()));
        Ok(candidates)
    }

    /// The candidate with these blocks, width, context, batch size, steps and steps between looks,
    /// except where the user set others, and the reasons for everything that follows from them.
    fn candidate(&self, sizes: [usize; 4], steps: u64, interval: Option<u64>) -> Result<(Candidate, Vec<Note>)> {
        let mut settings = self.request.settings.clone();
        let [n_layer, n_embd, context_length, batch_size] = sizes;
        settings.n_layer.get_or_insert(n_layer);
        settings.n_embd.get_or_insert(n_embd);
        settings.context_length.get_or_insert(context_length);
        settings.batch_size.get_or_insert(batch_size);
        settings.max_steps.get_or_insert(steps);
        if let Some(interval) = interval {
            settings.eval_interval.get_or_insert(interval);
            settings.checkpoint_interval.get_or_insert(interval);
            settings.sample_interval.get_or_insert(interval);
        }
        let (mut config, reasons) = settings.resolve(&self.text.facts(), self.device)?;
        let (windows, processes) = (config.windows_per_step(), self.request.processes);
        if !windows.is_multiple_of(processes) {
            let TrainConfig { batch_size, grad_accum_steps, .. } = config;
            let line = format!(
                "batch_size = {batch_size} times grad_accum_steps = {grad_accum_steps} windows do not divide among {processes} processes"
            );
            return Err(ConfigError::Contradiction(line).into());
        }
        let (mut share, shape) = (share_of(&config, processes), (self.request.shape)(&config));
        let available = self.request.memory_bytes;
        if let Some(available) = available {
            let open = Undecided::by(&self.request.settings);
            let fitted = fit_to_memory(&share, &shape, self.kernels, open, available)?;
            (config, share) = (fitted.in_whole(&config), fitted.config);
        }
        Ok((Candidate { config, share, shape, available }, reasons))
    }

    /// Seconds for the run: all requested ones, or what measuring the device leaves of them.
    fn seconds(&self, speed: &Speed) -> f64 {
        let Request { seconds, measured_within, .. } = *self.request;
        if measured_within { (seconds - speed.measured_s).max(MIN_SHARE * seconds) } else { seconds }
    }

    /// The candidate with the lowest predicted loss, among those that the time allows.
    fn best(&self, candidates: &[Candidate], speed: &Speed) -> Result<Proposal> {
        let (proposals, refused): (Vec<Proposal>, Vec<Error>) =
            candidates.iter().map(|candidate| self.proposal(&candidate.config, speed)).partition_result();
        let long_enough = |proposal: &Proposal| proposal.config.max_steps >= MIN_PLANNED_STEPS || candidates.len() == 1;
        let most = MAX_PARAMETERS_A_TOKEN * self.text.train_tokens as f64;
        let suits_the_text = |proposal: &Proposal| proposal.parameters as f64 <= most;
        let better = |best: Proposal, next: Proposal| {
            let is_better = next.loss.loss < best.loss.loss;
            if is_better && long_enough(&next) && suits_the_text(&next) { next } else { best }
        };
        let best = proposals.into_iter().reduce(better);
        best.ok_or_else(|| refused.into_iter().next().unwrap_or(Error::NothingToPlan))
    }

    /// The proposal, or an error if one step takes longer than the time for the run.
    fn require_step_fits(&self, proposal: Proposal, speed: &Speed) -> Result<Proposal> {
        let left = self.seconds(speed);
        if proposal.step_s > left {
            return Err(Error::NoStepFits { step: duration(proposal.step_s), left: duration(left) });
        }
        Ok(proposal)
    }

    /// The proposal for this configuration, with its number of steps and its predictions: with the
    /// usual number of looks, or with fewer if those would exceed their share of the time.
    fn proposal(&self, candidate: &TrainConfig, speed: &Speed) -> Result<Proposal> {
        let usual = self.proposal_with(candidate, speed, None)?;
        let most = LOOKING_SHARE * self.seconds(speed);
        let looking = usual.seconds - usual.config.max_steps as f64 * usual.step_s;
        if looking <= most || self.request.settings.has("eval_interval") {
            return Ok(usual);
        }
        let looks = (most / usual.look_s).max(1.0).floor();
        let steps = (self.seconds(speed) - looks * usual.look_s) / usual.step_s.max(1e-9);
        let interval = (steps / looks).clamp(1.0, 1e12).ceil() as u64;
        let mut fewer = self.proposal_with(candidate, speed, Some(interval))?;
        let steps = fewer.look_s / fewer.step_s.max(1e-9);
        fewer.reasons.push(format!("eval_interval = {interval}: an evaluation takes as long as {steps:.0} steps"));
        Ok(fewer)
    }

    /// As [`Self::proposal`], with this many steps between looks.
    fn proposal_with(&self, candidate: &TrainConfig, speed: &Speed, interval: Option<u64>) -> Result<Proposal> {
        let TrainConfig { n_layer, n_embd, context_length, batch_size, .. } = *candidate;
        let with_steps = |steps: u64| self.candidate([n_layer, n_embd, context_length, batch_size], steps, interval);
        let length_is_open = self.request.settings.max_steps.is_none();
        let provisional = with_steps(candidate.max_steps)?;
        let step_s = speed.step_s(provisional.0.flops());
        let whole_s = self.seconds(speed);
        let look_s = |run: &Candidate| speed.look_s(&run.share, &run.shape, self.text.val_tokens);
        let seconds = |run: &Candidate| {
            let TrainConfig { max_steps, eval_interval, .. } = run.config;
            Pace { step_s, look_s: look_s(run) }.seconds(0, max_steps, eval_interval)
        };
        let parameters = provisional.0.shape.parameters() as u64;
        let most = most_steps(parameters, self.text.train_tokens, candidate.tokens_per_step());
        let (candidate, reasons) = if length_is_open {
            // The number of looks and their cost depend on the number of steps.
            let affordable = (whole_s / step_s.max(1e-9)).clamp(1.0, 1e12) as u64;
            let steps = largest_that_fits(affordable.min(most), |steps| Ok(seconds(&with_steps(steps)?.0) <= whole_s))?;
            with_steps(steps)?
        } else {
            provisional
        };
        let (seconds, look_s) = (seconds(&candidate), look_s(&candidate));
        let Candidate { config, share, shape, .. } = candidate;
        let run = Run::new(&self.text, n_layer, n_embd, config.max_steps, config.tokens_per_step());
        let ends_early = length_is_open && config.max_steps == most && seconds < 0.9 * whole_s;
        let mut warnings = warnings(run, &config, self.fit.fewest_tokens, ends_early);
        if length_is_open && seconds > whole_s {
            // This is the shortest possible run.
            let [seconds, left] = [seconds, whole_s].map(duration);
            let line = format!(
                "the shortest run of this model takes about {seconds}, and {left} are available; give it more time, or set a \
                 smaller model"
            );
            warnings.insert(0, line);
        }
        Ok(Proposal {
            parameters,
            tokens: run.tokens as u64,
            passes: run.passes(),
            loss: self.fit.estimate(run),
            memory: training(&share, &shape, self.kernels),
            warnings,
            set: keys::all().map(|key| key.name).filter(|name| self.request.settings.has(name)).collect(),
            text: self.text.clone(),
            speed: speed.clone(),
            config,
            shape,
            step_s,
            look_s,
            seconds,
            reasons: reasons.iter().map(ToString::to_string).collect(),
        })
    }
}

/// The largest number up to `most` that fits, if all smaller ones do; at least 1.
fn largest_that_fits(most: u64, fits: impl Fn(u64) -> Result<bool>) -> Result<u64> {
    let (mut largest, mut too_large) = (1, most + 1);
    while largest + 1 < too_large {
        let middle = largest + (too_large - largest) / 2;
        if fits(middle)? { largest = middle } else { too_large = middle }
    }
    Ok(largest)
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
    times.iter().filter_map(|times| nearest(*times)).unique_by(|candidate| sizes(&candidate.config)).collect()
}

/// Warnings about a text and a run, before it begins.
fn warnings(run: Run<'_>, config: &TrainConfig, fewest_tokens: f64, ends_early: bool) -> Vec<String> {
    let (unique, passes) = (run.text.train_tokens as f64, run.passes());
    let [tokens, fewest, worth, repeated] =
        [run.tokens, fewest_tokens, run.worth() - unique, run.tokens - unique].map(short);
    let warnings = [
        (
            config.architecture != "qwen3" || config.optimizer != OptimizerKind::Muon,
            "the loss is predicted from runs with the default architecture and Muon: others mostly do worse".to_owned(),
        ),
        (
            run.tokens < fewest_tokens,
            format!(
                "{tokens} tokens are fewer than in any run that the prediction is based on ({fewest}): the loss is a guess"
            ),
        ),
        (
            run.text.train_tokens < 100_000,
            format!(
                "{} tokens are little text: expect the sound of it, but no sense; a few hundred thousand make a difference",
                grouped(run.text.train_tokens)
            ),
        ),
        (
            passes > 4.0,
            format!(
                "the text is read {passes:.1} times: its {repeated} repeated tokens teach as much as {worth} new ones; \
                 more text would help more than more time"
            ),
        ),
        (
            ends_early,
            format!(
                "more than {MAX_PASSES_OF_LARGE} passes would only memorise the text: the run ends before its time is up"
            ),
        ),
        (
            passes > 15.0 || (passes > 3.0 && run.parameters > 10.0 * unique),
            "the model can memorise the text: the validation loss may rise again; `best` keeps the lowest, and \
             patience = 3 ends the run there"
                .to_owned(),
        ),
    ];
    warnings.into_iter().filter_map(|(holds, warning)| holds.then_some(warning)).collect()
}

#[cfg(test)]
mod tests;
