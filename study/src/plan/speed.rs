//! What a step takes on a device, from the few that were timed.

use ember_model::GptConfig;
use serde::Serialize;

use ember_training::config::TrainConfig;

/// A shape whose steps were timed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timed {
    /// Blocks.
    pub n_layer: usize,
    /// Width.
    pub n_embd: usize,
    /// Tokens of a window.
    pub context_length: usize,
    /// Windows of a step.
    pub windows: usize,
    /// Model FLOPs of a step.
    pub flops: f64,
    /// Seconds of the first step; on a GPU of the first two, which compile the kernels.
    pub first_s: f64,
    /// Seconds of each of the others.
    pub step_s: f64,
}

impl Timed {
    /// Seconds of a token that is learned from.
    pub fn token_s(&self) -> f64 {
        self.step_s / (self.windows * self.context_length).max(1) as f64
    }

    /// Model FLOPs a second.
    pub fn rate(&self) -> f64 {
        self.flops / self.step_s.max(1e-9)
    }
}

/// What it takes to look at a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Looking {
    /// Seconds to evaluate one token.
    pub evaluate_token_s: f64,
    /// Seconds to write one token.
    pub sample_token_s: f64,
}

/// Effective FLOP/s by the size of a step: small steps are mostly overhead, large ones come near
/// what the device can do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Speed {
    /// What was timed, by the size of a step.
    pub timed: Vec<Timed>,
    /// What it takes to look at the first model that was timed.
    #[serde(flatten)]
    pub looking: Looking,
    /// Seconds in which that model learns from a token.
    pub looked_token_s: f64,
    /// Seconds that all of the measuring took.
    pub measured_s: f64,
    /// Seconds of these in which a GPU's kernels were compiled.
    pub compiled_s: f64,
}

impl Speed {
    /// Takes a measurement in; a second one of the same size replaces the first.
    pub fn add(&mut self, timed: Timed) {
        self.timed.retain(|other| other.flops != timed.flops);
        self.timed.push(timed);
        self.timed.sort_by(|a, b| a.flops.total_cmp(&b.flops));
    }

    /// Seconds of a step of so many model FLOPs: those measured, where it was; else by the rate of
    /// its neighbours in size. Between two of them the logarithm of the rate is drawn straight over
    /// that of the size; beyond the last, the rate stays.
    pub fn step_s(&self, flops: f64) -> f64 {
        let after = self.timed.partition_point(|timed| timed.flops <= flops);
        let rate = match (after.checked_sub(1).and_then(|i| self.timed.get(i)), self.timed.get(after)) {
            (Some(below), Some(above)) => {
                let place = (flops / below.flops).ln() / (above.flops / below.flops).ln();
                (below.rate().ln() + place * (above.rate() / below.rate()).ln()).exp()
            }
            // Smaller than any: what a step takes at least is its overhead, which does not shrink
            // with it.
            (None, Some(first)) => return first.step_s * (flops / first.flops).max(0.5),
            (Some(last), None) => last.rate(),
            (None, None) => return 0.0,
        };
        flops / rate
    }

    /// Seconds of one look at a model: evaluation, sample, and the checkpoint's way to the disk.
    pub fn look_s(&self, config: &TrainConfig, shape: &GptConfig, val_tokens: u64) -> f64 {
        /// A disk that takes 200 MB/s, and the dozen files that are made sure of one by one.
        const DISK: f64 = 2e8;
        const FILES_S: f64 = 0.05;
        // A token evaluated or written costs in proportion to a token trained.
        let token_s = self.step_s(step_flops(config, shape)) / config.tokens_per_step() as f64;
        let times = token_s / self.looked_token_s.max(1e-12);
        let Looking { evaluate_token_s, sample_token_s } = self.looking;
        let evaluated = if config.eval_tokens == 0 { val_tokens } else { config.eval_tokens.min(val_tokens) } as f64;
        let samples = config.sample_prompts.len().max(1) as f64;
        let sampled = if config.sample_interval > 0 { config.sample_tokens as f64 * samples } else { 0.0 };
        let saved = 12.0 * shape.parameters() as f64 / DISK + FILES_S;
        // Decoding works on one row: overhead, which hardly grows with the width.
        evaluated * evaluate_token_s * times + sampled * sample_token_s * times.sqrt().max(1.0) + saved
    }
}

/// Model FLOPs of a step in training.
pub fn step_flops(config: &TrainConfig, shape: &GptConfig) -> f64 {
    shape.training_flops_per_token() * config.tokens_per_step() as f64
}
