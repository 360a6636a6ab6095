//! What is asked of a plan, and what it proposes.

use ember_model::GptConfig;
use serde::Serialize;

use super::fit::Estimate;
use super::measure::Limits;
use super::speed::Speed;
use super::text::Statistics;
use ember_training::config::{Settings, TrainConfig};
use ember_training::memory::prediction::Parts;

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
