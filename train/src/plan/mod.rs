//! What to train on a text, on this device, in a given time: `plan` and `run --minutes`.
//!
//! A plan is a configuration like any other, made in the one place where configurations are made
//! ([`Settings::resolve`](crate::config::Settings::resolve)). What is different is that the device's speed is measured
//! ([`measure`], [`speed`]), not guessed, and that several shapes are resolved, and the one with the lowest predicted loss
//! ([`fit`]) is kept among those that memory holds. A key that somebody set is the same in all of them.

pub mod check;
pub mod fit;
pub mod measure;
mod picture;
pub mod recipe;
pub mod speed;
pub mod text;

pub use picture::fit_svg;

use std::time::Duration;

use anyhow::{Context, Result};
use ember_data::prepare::Dataset;
use ember_data::windows::WindowRule;
use ember_model::device::Selected;
use ember_model::kernels::is_cpu;
use serde::Serialize;

use crate::clock::Pace;
use crate::config::{ConfigError, DeviceKind, Settings, TrainConfig, keys};
use crate::memory::prediction::{Kernels, Parts, training};
use crate::report::units::{bytes, grouped, short};
use fit::{Estimate, Fit, Run};
use speed::{Speed, parameters, step_flops};
use text::Statistics;

/// Blocks, width and context that are tried; the context grows with the model, as in the recipes.
const SHAPES: &[(u64, u64, u64)] = &[
    (2, 64, 64),
    (2, 96, 64),
    (3, 96, 64),
    (4, 128, 128),
    (4, 192, 128),
    (6, 256, 256),
    (6, 384, 256),
    (8, 512, 512),
    (12, 768, 1024),
];

/// Tokens of a step that are tried.
const TOKENS_PER_STEP: &[u64] = &[1024, 2048, 4096, 8192, 16384, 32768];

/// A run of fewer steps than this hardly leaves its warm-up.
const FEWEST_STEPS: u64 = 60;

/// What is wanted.
pub struct Wish {
    /// What somebody set.
    pub settings: Settings,
    /// Seconds for the whole of it: training, evaluations, saves, samples.
    pub seconds: f64,
    /// Bytes that training may take, where that is known.
    pub memory_bytes: Option<u64>,
    /// For measuring the device.
    pub measuring: Duration,
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
    /// Parameters without the position table, the N of the fit.
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

impl Proposal {
    /// What steps and looks will take.
    pub fn pace(&self) -> Pace {
        Pace { step_s: self.step_s, look_s: self.look_s }
    }

    /// The fit's view of the run.
    pub fn run(&self) -> Run<'_> {
        run(&self.config, &self.text)
    }
}

/// The proposal for a prepared text.
///
/// # Errors
/// When a set key does not fit the text, when nothing fits into the memory, or when the device fails.
pub fn propose(wish: &Wish, dataset: &Dataset, text: Statistics, selected: &Selected) -> Result<Proposal> {
    let planner = Planner::new(wish, dataset, text, selected)?;
    let mut candidates = planner.candidates()?;
    let few = to_measure(&candidates, &planner.text);
    let mut speed = measure::speed(&few, dataset, selected, wish.measuring.mul_f64(0.7))?;
    let mut best = planner.best(&candidates, &speed)?;
    // What was chosen is measured itself where there is time, and the length follows from that.
    let left = wish.measuring.as_secs_f64() - speed.measured_s;
    let known = speed.timed.iter().any(|timed| timed.flops == step_flops(&best.config, planner.text.vocab_size));
    if !known && 4.0 * best.step_s < left && (is_cpu(&selected.device) || compiles_quickly(&speed)) {
        let timed = measure::Bench::new(&best.config, dataset, selected)?.time(Duration::from_secs_f64(left));
        speed.add(timed);
        speed.measured_s += timed.first_s + timed.step_s;
        let chosen = |other: &TrainConfig| same_shape(other, &best.config);
        candidates.retain(chosen);
        best = planner.best(&candidates, &speed)?;
    }
    Ok(best)
}

fn compiles_quickly(speed: &Speed) -> bool {
    speed.timed.iter().all(|timed| timed.first_s < 2.0)
}

/// Everything that the candidates have in common.
struct Planner<'a> {
    wish: &'a Wish,
    text: Statistics,
    fit: Fit,
    device: DeviceKind,
    kernels: Kernels,
    /// Whether windows begin where documents do, so that a context is as long as the documents are.
    by_document: bool,
}

impl<'a> Planner<'a> {
    fn new(wish: &'a Wish, dataset: &Dataset, text: Statistics, selected: &Selected) -> Result<Self> {
        let device = if selected.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
        let kernels = if is_cpu(&selected.device) { Kernels::Fused } else { Kernels::Plain };
        let by_document = dataset.manifest.window_rule == WindowRule::DocumentStart;
        Ok(Self { wish, text, fit: Fit::new(&fit::points()?), device, kernels, by_document })
    }

    /// One configuration for each shape and batch that the set keys leave open, smallest step first; their lengths are not yet
    /// chosen.
    fn candidates(&self) -> Result<Vec<TrainConfig>> {
        let mut candidates: Vec<TrainConfig> = Vec::new();
        let mut refused: Option<ConfigError> = None;
        for (n_layer, n_embd, context) in SHAPES {
            // Windows must fit into what is held out, several of them.
            let mut context = if self.by_document { (*context).clamp(96, 128) } else { *context };
            while context > 8 && context * 4 > self.text.val_tokens.min(self.text.train_tokens) {
                context /= 2;
            }
            for tokens in TOKENS_PER_STEP {
                let mut settings = self.wish.settings.clone();
                settings.suggest("n_layer", *n_layer);
                settings.suggest("n_embd", *n_embd);
                settings.suggest("context_length", context);
                settings.suggest("batch_size", (tokens / context).max(1));
                settings.suggest("max_steps", 1000);
                match settings.resolve(&self.text.facts(), self.device) {
                    Ok((config, _)) if candidates.iter().any(|other| same_shape(other, &config)) => {}
                    Ok((config, _)) => candidates.push(config),
                    Err(error) => refused = Some(error),
                }
            }
        }
        if let (true, Some(error)) = (candidates.is_empty(), refused) {
            return Err(error.into());
        }
        candidates.sort_by(|a, b| {
            let flops = |config: &TrainConfig| step_flops(config, self.text.vocab_size);
            flops(a).total_cmp(&flops(b))
        });
        Ok(candidates)
    }

    /// The candidate with the lowest predicted loss of those that memory and time allow.
    fn best(&self, candidates: &[TrainConfig], speed: &Speed) -> Result<Proposal> {
        let mut best: Option<Proposal> = None;
        let mut least_memory = u64::MAX;
        for candidate in candidates {
            let proposal = self.proposal(candidate, speed)?;
            least_memory = least_memory.min(proposal.memory.peak_bytes);
            let fits = self.wish.memory_bytes.is_none_or(|most| proposal.memory.peak_bytes <= most);
            let long_enough = proposal.config.max_steps >= FEWEST_STEPS || candidates.len() == 1;
            let better = |than: &Proposal| proposal.loss.loss < than.loss.loss;
            if fits && (best.is_none() || long_enough) && best.as_ref().is_none_or(better) {
                best = Some(proposal);
            }
        }
        best.with_context(|| {
            format!(
                "no model fits into {} of memory: the smallest that was tried needs {}; raise --memory-limit, or set a smaller \
                 batch_size, context_length or n_embd",
                bytes(self.wish.memory_bytes.unwrap_or(0)),
                bytes(least_memory)
            )
        })
    }

    /// The candidate with its length, and what will come of it.
    fn proposal(&self, candidate: &TrainConfig, speed: &Speed) -> Result<Proposal> {
        let vocab_size = self.text.vocab_size;
        let set = self.wish.settings.has("max_steps");
        let mut steps = if set { candidate.max_steps } else { FEWEST_STEPS };
        let (mut config, mut reasons) = self.of_length(candidate, steps)?;
        let step_s = speed.step_s(&config, vocab_size);
        let mut look_s = speed.look_s(&config, vocab_size, self.text.val_tokens);
        if !set {
            // How often the run looks depends on its length, which depends on how often it looks.
            for _ in 0..3 {
                let pace = Pace { step_s, look_s };
                steps = pace.longest(0, self.wish.seconds, config.eval_interval);
                (config, reasons) = self.of_length(candidate, steps)?;
                look_s = speed.look_s(&config, vocab_size, self.text.val_tokens);
            }
        }
        let seconds = Pace { step_s, look_s }.seconds(0, config.max_steps, config.eval_interval);
        let run = run(&config, &self.text);
        Ok(Proposal {
            parameters: run.parameters as u64,
            tokens: run.tokens as u64,
            passes: run.passes(),
            loss: self.fit.estimate(run),
            memory: memory(&config, vocab_size, self.kernels),
            warnings: warnings(run),
            set: keys::all().map(|key| key.name).filter(|name| self.wish.settings.has(name)).collect(),
            text: self.text.clone(),
            speed: speed.clone(),
            config,
            step_s,
            look_s,
            seconds,
            reasons,
        })
    }

    /// The candidate's shape with so many steps, everything else as it follows from them.
    fn of_length(&self, candidate: &TrainConfig, steps: u64) -> Result<(TrainConfig, Vec<String>)> {
        let mut settings = self.wish.settings.clone();
        settings.suggest("n_layer", candidate.n_layer as u64);
        settings.suggest("n_embd", candidate.n_embd as u64);
        settings.suggest("context_length", candidate.context_length as u64);
        settings.suggest("batch_size", candidate.batch_size as u64);
        settings.suggest("max_steps", steps);
        Ok(settings.resolve(&self.text.facts(), self.device)?)
    }
}

fn same_shape(a: &TrainConfig, b: &TrainConfig) -> bool {
    let shape = |c: &TrainConfig| (c.n_layer, c.n_embd, c.context_length, c.batch_size, c.grad_accum_steps);
    shape(a) == shape(b)
}

/// The smallest candidate, and some with 6, 40 and 250 times its work.
fn to_measure(candidates: &[TrainConfig], text: &Statistics) -> Vec<TrainConfig> {
    let flops = |config: &TrainConfig| step_flops(config, text.vocab_size);
    let Some(least) = candidates.first().map(flops) else { return Vec::new() };
    let mut chosen: Vec<TrainConfig> = Vec::new();
    for times in [1.0, 6.0, 40.0, 250.0] {
        let near = |config: &TrainConfig| (flops(config) / (times * least)).ln().abs();
        let Some(nearest) = candidates.iter().min_by(|a, b| near(a).total_cmp(&near(b))) else { continue };
        if !chosen.iter().any(|other| same_shape(other, nearest)) {
            chosen.push(nearest.clone());
        }
    }
    chosen
}

fn run<'a>(config: &TrainConfig, text: &'a Statistics) -> Run<'a> {
    Run {
        text,
        parameters: parameters(config, text.vocab_size),
        tokens: config.max_steps as f64 * config.tokens_per_step() as f64,
        steps: config.max_steps as f64,
    }
}

/// Bytes that training takes, by part.
pub fn memory(config: &TrainConfig, vocab_size: usize, kernels: Kernels) -> Parts {
    training(config, &config.shape(vocab_size), kernels)
}

/// What a person should know of a text and a run before it begins.
fn warnings(run: Run<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let (unique, passes) = (run.text.train_tokens as f64, run.passes());
    if run.text.train_tokens < 100_000 {
        warnings.push(format!(
            "{} tokens are little text: expect something that sounds like it, not sense; a few hundred thousand make a difference",
            grouped(run.text.train_tokens)
        ));
    }
    if passes > 4.0 {
        warnings.push(format!(
            "the text is read {passes:.1} times: the repetitions count as {} of the {} tokens that they are; more text would \
             help more than more time",
            short(run.worth() - unique),
            short(run.tokens - unique)
        ));
    }
    if passes > 15.0 || (passes > 3.0 && run.parameters > 10.0 * unique) {
        warnings.push(
            "the model can learn the text by heart: the validation loss will turn upwards; `best` keeps the lowest, and \
             patience = 3 ends the run there"
                .to_owned(),
        );
    }
    warnings
}
