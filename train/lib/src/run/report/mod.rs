//! A run's reports: to a [`Reporter`] such as the terminal while it runs, and to `metrics.jsonl`,
//! the samples and TensorBoard as lasting [`Records`].
//!
//! Reports hold plain numbers, no tensors, and never influence what is learned.

mod append;
pub mod jsonl;
mod metrics;
pub mod records;
mod tensorboard;

pub use metrics::{Row, RunFacts, last_step};
pub use records::Records;

use crate::note::Note;

/// One optimizer step as it is shown.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// Steps taken so far, including this one.
    pub step: u64,
    /// Steps of the whole run.
    pub max_steps: u64,
    /// Mean training loss since the last report, in nats per token.
    pub train_loss: f64,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Target tokens trained on so far.
    pub tokens: u64,
    /// Training speed since the last report.
    pub tokens_per_s: f64,
    /// Model FLOP utilisation: the model's FLOP/s divided by the device's peak, if that is known.
    pub mfu: Option<f64>,
    /// Memory in use on the device, if the system tells.
    pub memory_bytes: Option<u64>,
    /// Time since the run began, including earlier sessions.
    pub elapsed_s: f64,
    /// Estimated time to the end, if it can be estimated.
    pub remaining_s: Option<f64>,
}

/// One evaluation on the validation split as it is shown.
#[derive(Clone, Debug, Default)]
pub struct EvalReport {
    /// Steps taken so far.
    pub step: u64,
    /// Mean loss in nats per token.
    pub val_loss: f64,
    /// The same in bits per byte, unless the text is the built-in stories.
    pub bits_per_byte: Option<f64>,
    /// The loss of the averaged weights, if an average is kept.
    pub ema_val_loss: Option<f64>,
    /// Whether its step is saved and the best of the saved ones.
    pub is_best: bool,
    /// The loss of the best n-gram model of the text, in nats per token.
    pub ngram_loss: Option<f64>,
    /// The lowest possible loss on the built-in stories, in nats per token.
    pub entropy_floor: Option<f64>,
    /// The loss of the best predictor that forgets earlier sentences of the built-in stories, in
    /// nats per token.
    pub forgetful_loss: Option<f64>,
}

/// A reporter that shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Reporter for Silent {}

/// Shows a run's progress. No method can fail, and none may write to the run's files.
pub trait Reporter {
    /// Training begins.
    fn begin(&mut self, _run: &str, _first_step: u64, _max_steps: u64) {}
    /// A step was taken.
    fn step(&mut self, _report: &StepReport) {}
    /// The validation split was evaluated.
    fn evaluation(&mut self, _report: &EvalReport) {}
    /// Text was sampled.
    fn sample(&mut self, _step: u64, _text: &str) {}
    /// A note to the user.
    fn note(&mut self, _note: Note) {}
    /// Whether the user requested a stop.
    fn stop_requested(&self) -> bool {
        false
    }
    /// Releases the terminal; only notes are shown afterwards.
    fn finish(&mut self) {}
}
