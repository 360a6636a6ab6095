//! What to train on a text, on this device, in a given time.
//!
//! A plan is a configuration like any other, made in the one place where configurations are made
//! ([`Settings::resolve`](ember_training::config::Settings::resolve)). What is different is that
//! the device's speed is measured ([`measure`], [`speed`]), not guessed, and that several shapes
//! are resolved, and the one with the lowest predicted loss ([`fit`]) is kept among those that
//! memory holds. A key that somebody set is the same in all of them.

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
    ConfigError, DeviceKind, MOST_PASSES_OF_LARGE, OptimizerKind, Settings, TextFacts, TrainConfig, fitting_context,
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

/// Blocks, width and context that are tried; the context grows with the model, as in the recipes.
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

/// Tokens of a step that are tried.
const TOKENS_PER_STEP: &[usize] = &[1024, 2048, 4096, 8192, 16384, 32768];

/// The length of every candidate until its own is chosen. What is compared before that, sizes and
/// memory, does not depend on it.
const PROVISIONAL_STEPS: u64 = 1000;

/// A run of fewer steps than this hardly leaves its warm-up.
const FEWEST_PLANNED_STEPS: u64 = 60;

/// A model of more parameters for each token of the text learns it by heart before it has learned
/// what the formula promises: on 100 KB one half as wide was as good in a third of the time
/// (bench/LEARNING.md).
const MOST_PARAMETERS_A_TOKEN: f64 = 10.0;

/// The most time for measuring the device.
pub const MEASURING: Limits = Limits { timing: Duration::from_secs(18), compiling: Duration::from_secs(120) };

/// The share of its time that a run is planned for at least, however long measuring took.
const LEAST_SHARE: f64 = 0.2;

/// The share of its time that a run spends on looks at most, where it has more than one.
const LOOKING_SHARE: f64 = 0.25;

/// What is wanted.
pub struct Request<'a> {
    /// What somebody set.
    pub settings: Settings,
    /// Seconds for the whole of it: training, evaluations, saves, samples.
    pub seconds: f64,
    /// Whether the device is measured in these seconds, too.
    pub measured_within: bool,
    /// Bytes that training may take, where that is known.
    pub memory_bytes: Option<u64>,
    /// For measuring the device: in all, and for the compiling of a GPU's kernels besides.
    pub measuring: Limits,
    /// Processes that share every step; each has a device as fast as this one, and what they say to
    /// each other is not foreseen.
    pub processes: usize,
    /// The model that a configuration makes.
    pub shape: &'a dyn Fn(&TrainConfig) -> GptConfig,
    /// Asked before each pass of what is measured.
    pub go_on: &'a dyn Fn() -> bool,
}

/// What is proposed, and what will come of it.
#[derive(Clone, Debug, Serialize)]
pub struct Proposal {
    /// The run.
    pub config: TrainConfig,
    /// Keys that somebody set.
    pub set: Vec<&'static str>,
    /// The text.
    pub text: Statistics,
    /// The device.
    pub speed: Speed,
    /// The model.
    pub shape: GptConfig,
    /// Its parameters.
    pub parameters: u64,
    /// Tokens that will be learned from.
    pub tokens: u64,
    /// How often the text will be read.
    pub passes: f64,
    /// The lowest validation loss on the way.
    pub loss: Estimate,
    /// Bytes of a training step.
    pub memory: Parts,
    /// Seconds of a step.
    pub step_s: f64,
    /// Seconds of an evaluation with its save and sample.
    pub look_s: f64,
    /// Seconds of all of it.
    pub seconds: f64,
    /// Why each choice is what it is.
    pub reasons: Vec<String>,
    /// What to think of before beginning.
    pub warnings: Vec<String>,
}

/// The proposal for a prepared text.
///
/// # Errors
/// When a set key does not fit the text, when nothing fits into the memory, when not one step fits into
/// the time, when the device fails, or the request says to stop.
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
    // What was chosen is measured itself where there is time, and the length follows from that.
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
    planner.if_a_step_fits(best, &speed)
}

/// What a plan would make of these settings, whatever the text: one configuration for each shape,
/// smallest first, with the windows that a micro-batch asks for; for each that cannot be, why not.
pub fn for_every_text(settings: &Settings, device: DeviceKind) -> Vec<Result<TrainConfig, ConfigError>> {
    let config = |(n_layer, n_embd, _): &(usize, usize, usize)| {
        let mut settings = settings.clone();
        settings.n_layer.get_or_insert(*n_layer);
        settings.n_embd.get_or_insert(*n_embd);
        settings.batch_size.get_or_insert(settings.micro_batch.unwrap_or(1));
        settings.max_steps.get_or_insert(1); // for which no rate is smaller
        Ok(settings.resolve(&TextFacts::NOTHING, device)?.0)
    };
    SHAPES.iter().map(config).collect()
}

/// Everything that the candidates have in common.
struct Planner<'a> {
    request: &'a Request<'a>,
    text: Statistics,
    fit: Fit,
    device: DeviceKind,
    kernels: Kernels,
    /// Whether windows begin where documents do, so that a context is as long as the documents are.
    by_document: bool,
}

impl Planner<'_> {
    /// One candidate for each shape and batch that the set keys leave open and that memory holds,
    /// smallest step first; their lengths are not yet chosen.
    fn candidates(&self) -> Result<Vec<Candidate>> {
        let (candidates, refused): (Vec<_>, Vec<_>) = iproduct!(SHAPES, TOKENS_PER_STEP)
            .map(|((n_layer, n_embd, context), tokens)| {
                let context = if self.by_document { (*context).clamp(96, 128) } else { *context };
                let context = fitting_context(context, &self.text.facts());
                let batch_size = (tokens / context).max(1).next_multiple_of(self.request.processes);
                self.candidate([*n_layer, *n_embd, context, batch_size], PROVISIONAL_STEPS, None)
            })
            .partition_result();
        // The first that was refused is the smallest.
        if let (true, Some(error)) = (candidates.is_empty(), refused.into_iter().next()) {
            return Err(error);
        }
        let candidates = candidates.into_iter().map(|(candidate, _)| candidate);
        let mut candidates: Vec<Candidate> = candidates.unique_by(|candidate| sizes(&candidate.config)).collect();
        candidates.sort_by(|a, b| a.flops().total_cmp(&b.flops()));
        Ok(candidates)
    }

    /// The candidate with these blocks, width, context, batch, steps and steps between looks, where
    /// nobody set others, and the reasons for all that follows from them.
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

    /// Seconds for the run: all that are asked for, or what measuring the device leaves of them.
    fn seconds(&self, speed: &Speed) -> f64 {
        let Request { seconds, measured_within, .. } = *self.request;
        if measured_within { (seconds - speed.measured_s).max(LEAST_SHARE * seconds) } else { seconds }
    }

    /// The candidate with the lowest predicted loss of those that time allows.
    fn best(&self, candidates: &[Candidate], speed: &Speed) -> Result<Proposal> {
        let (proposals, refused): (Vec<Proposal>, Vec<Error>) =
            candidates.iter().map(|candidate| self.proposal(&candidate.config, speed)).partition_result();
        let long_enough =
            |proposal: &Proposal| proposal.config.max_steps >= FEWEST_PLANNED_STEPS || candidates.len() == 1;
        let most = MOST_PARAMETERS_A_TOKEN * self.text.train_tokens as f64;
        let suits_the_text = |proposal: &Proposal| proposal.parameters as f64 <= most;
        let better = |best: Proposal, next: Proposal| {
            let is_better = next.loss.loss < best.loss.loss;
            if is_better && long_enough(&next) && suits_the_text(&next) { next } else { best }
        };
        let best = proposals.into_iter().reduce(better);
        best.ok_or_else(|| refused.into_iter().next().unwrap_or(Error::NothingToPlan))
    }

    /// The proposal, unless one step of it takes longer than the time that there is.
    fn if_a_step_fits(&self, proposal: Proposal, speed: &Speed) -> Result<Proposal> {
        let left = self.seconds(speed);
        if proposal.step_s > left {
            return Err(Error::NoStepFits { step: duration(proposal.step_s), left: duration(left) });
        }
        Ok(proposal)
    }

    /// The candidate of this configuration with its length, and what will come of it: with as many
    /// looks as a run has, or with fewer where those would take more than their share of the time.
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
        fewer.reasons.push(format!("eval_interval = {interval}: a look takes as long as {steps:.0} steps"));
        Ok(fewer)
    }

    /// The same with so many steps between looks.
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
            // How often and how long a run looks depends on its length.
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
            // The shortest run that there is.
            let [seconds, left] = [seconds, whole_s].map(duration);
            let line = format!(
                "the shortest run of this model takes about {seconds}, and {left} are there for it; give it more time, or set a \
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

/// The largest number up to `most` that fits, where all below it do; 1 in any case.
fn largest_that_fits(most: u64, fits: impl Fn(u64) -> Result<bool>) -> Result<u64> {
    let (mut largest, mut too_large) = (1, most + 1);
    while largest + 1 < too_large {
        let middle = largest + (too_large - largest) / 2;
        if fits(middle)? { largest = middle } else { too_large = middle }
    }
    Ok(largest)
}

/// The smallest candidate and some with 6, 40 and 250 times its work; on a GPU, where small ones are all
/// overhead and each one's kernels are compiled, first the most telling.
fn to_measure(candidates: &[Candidate], on_gpu: bool) -> Vec<&Candidate> {
    let times: &[f64] = if on_gpu { &[40.0, 4000.0, 1.0, 400.0] } else { &[1.0, 6.0, 40.0, 250.0] };
    let Some(least) = candidates.first().map(Candidate::flops) else { return Vec::new() };
    let nearest = |times: f64| {
        let near = |candidate: &Candidate| (candidate.flops() / (times * least)).ln().abs();
        candidates.iter().min_by(|a, b| near(a).total_cmp(&near(b)))
    };
    times.iter().filter_map(|times| nearest(*times)).unique_by(|candidate| sizes(&candidate.config)).collect()
}

/// What a person should know of a text and a run before it begins.
fn warnings(run: Run<'_>, config: &TrainConfig, fewest_tokens: f64, ends_early: bool) -> Vec<String> {
    let (unique, passes) = (run.text.train_tokens as f64, run.passes());
    let [tokens, fewest, worth, repeated] =
        [run.tokens, fewest_tokens, run.worth() - unique, run.tokens - unique].map(short);
    let warnings = [
        (
            config.architecture != "qwen3" || config.optimizer != OptimizerKind::Muon,
            "the loss is predicted from runs with the default's parts and Muon: others mostly do worse".to_owned(),
        ),
        (
            run.tokens < fewest_tokens,
            format!("{tokens} tokens are fewer than in any run that the prediction was made from ({fewest}): its loss is a guess"),
        ),
        (
            run.text.train_tokens < 100_000,
            format!(
                "{} tokens are little text: expect something that sounds like it, not sense; a few hundred thousand make a difference",
                grouped(run.text.train_tokens)
            ),
        ),
        (
            passes > 4.0,
            format!(
                "the text is read {passes:.1} times: the repetitions count as {worth} of the {repeated} tokens that they are; \
                 more text would help more than more time"
            ),
        ),
        (
            ends_early,
            format!("more than {MOST_PASSES_OF_LARGE} passes would only learn the text by heart: the run ends before the time is over"),
        ),
        (
            passes > 15.0 || (passes > 3.0 && run.parameters > 10.0 * unique),
            "the model can learn the text by heart: the validation loss may turn upwards; `best` keeps the lowest, and \
             patience = 3 ends the run there"
                .to_owned(),
        ),
    ];
    warnings.into_iter().filter_map(|(holds, warning)| holds.then_some(warning)).collect()
}

#[cfg(test)]
mod tests;
