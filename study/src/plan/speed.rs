//! The time of a step on a device, estimated from a few timed ones.

use ember_model::GptConfig;
use serde::Serialize;

use ember_training::config::TrainConfig;

/// A shape with timed steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timed {
    /// Number of blocks.
    pub n_layer: usize,
    /// Width.
    pub n_embd: usize,
    /// Tokens per window.
    pub context_length: usize,
    /// Windows per step.
    pub windows: usize,
    /// Model FLOPs per step.
    pub flops: f64,
    /// Seconds of the first step; on a GPU of the first two, which compile the kernels.
    pub first_s: f64,
    /// Seconds of each later step.
    pub step_s: f64,
}

impl Timed {
    /// Seconds per token of training.
    pub fn token_s(&self) -> f64 {
        self.step_s / (self.windows * self.context_length).max(1) as f64
    }

    /// Model FLOPs per second.
    pub fn rate(&self) -> f64 {
        self.flops / self.step_s.max(1e-9)
    }
}

/// The cost of a look at a model: evaluation and sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Looking {
    /// Seconds to evaluate one token.
    pub evaluate_token_s: f64,
    /// Seconds to generate one token.
    pub sample_token_s: f64,
}

/// Effective FLOP/s as a function of a step's size: small steps are mostly overhead, large ones
/// approach what the device can do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Speed {
    /// The timed shapes, ordered by the size of a step.
    pub timed: Vec<Timed>,
    /// The cost of a look at the first timed model.
    #[serde(flatten)]
    pub looking: Looking,
    /// Seconds per token of training of that model.
    pub looked_token_s: f64,
    /// Seconds of all measurements.
    pub measured_s: f64,
    /// Seconds of these spent compiling a GPU's kernels.
    pub compiled_s: f64,
}

impl Speed {
    /// Adds a measurement, replacing an earlier one of the same size.
    pub fn add(&mut self, timed: Timed) {
        self.timed.retain(|other| other.flops != timed.flops);
        self.timed.push(timed);
        self.timed.sort_by(|a, b| a.flops.total_cmp(&b.flops));
    }

    /// Seconds of a step of this many model FLOPs: as measured, if a step of this size was; else by
    /// the rate of the nearest sizes. Between two sizes, the logarithm of the rate is interpolated
    /// linearly over that of the size; beyond the largest, the rate stays constant.
    pub fn step_s(&self, flops: f64) -> f64 {
        let after = self.timed.partition_point(|timed| timed.flops <= flops);
        let rate = match (after.checked_sub(1).and_then(|i| self.timed.get(i)), self.timed.get(after)) {
            (Some(below), Some(above)) => {
                let place = (flops / below.flops).ln() / (above.flops / below.flops).ln();
                (below.rate().ln() + place * (above.rate() / below.rate()).ln()).exp()
            }
            // Smaller than any timed one: a step takes at least its overhead, which does not shrink
            // with its size.
            (None, Some(first)) => return first.step_s * (flops / first.flops).max(0.5),
            (Some(last), None) => last.rate(),
            (None, None) => return 0.0,
        };
        flops / rate
    }

    /// Seconds of one look at a model: evaluation, sample, and writing the checkpoint.
    pub fn look_s(&self, config: &TrainConfig, shape: &GptConfig, val_tokens: u64) -> f64 {
        /// A disk that writes 200 MB/s, and the dozen files that are synced one by one.
        const DISK: f64 = 2e8;
        const FILES_S: f64 = 0.05;
        // A token evaluated or generated costs in proportion to a token trained on.
        let token_s = self.step_s(step_flops(config, shape)) / config.tokens_per_step() as f64;
        let times = token_s / self.looked_token_s.max(1e-12);
        let Looking { evaluate_token_s, sample_token_s } = self.looking;
        let evaluated = if config.eval_tokens == 0 { val_tokens } else { config.eval_tokens.min(val_tokens) } as f64;
        let samples = config.sample_prompts.len().max(1) as f64;
        let sampled = if config.sample_interval > 0 { config.sample_tokens as f64 * samples } else { 0.0 };
        let saved = 12.0 * shape.parameters() as f64 / DISK + FILES_S;
        // Decoding runs one row: that is overhead, which hardly grows with the width.
        evaluated * evaluate_token_s * times + sampled * sample_token_s * times.sqrt().max(1.0) + saved
    }
}

/// Model FLOPs of a step in training.
pub fn step_flops(config: &TrainConfig, shape: &GptConfig) -> f64 {
    shape.training_flops_per_token() * config.tokens_per_step() as f64
}
