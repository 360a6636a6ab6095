//! What a run tells: to the terminal while it runs, to `metrics.jsonl` and TensorBoard for ever,
//! and as a picture at the end.
//!
//! It is told plain numbers and holds no tensor; what it is told never changes what is learned.

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
    /// Steps taken so far, this one included.
    pub step: u64,
    /// Steps of the whole run.
    pub max_steps: u64,
    /// Mean training loss since the last report, in nats per token.
    pub train_loss: f64,
    /// The rate this step was taken with.
    pub learning_rate: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Target tokens learned from so far.
    pub tokens: u64,
    /// Training speed since the last report.
    pub tokens_per_s: f64,
    /// Share of the device's peak that the model's own FLOPs make up, where the peak is known.
    pub mfu: Option<f64>,
    /// Memory in use on the device, where it can be asked.
    pub memory_bytes: Option<u64>,
    /// Time since the run began, earlier sessions included.
    pub elapsed_s: f64,
    /// Estimated time to the end, where it can be estimated.
    pub remaining_s: Option<f64>,
}

/// One evaluation on the validation split as it is shown.
#[derive(Clone, Debug, Default)]
pub struct EvalReport {
    /// Steps taken so far.
    pub step: u64,
    /// Mean loss in nats per token.
    pub val_loss: f64,
    /// The same in bits per byte, of a text that is not the built-in stories.
    pub bits_per_byte: Option<f64>,
    /// The loss of the averaged weights, where an average is kept.
    pub ema_val_loss: Option<f64>,
    /// Whether its step is saved, and no saved one had a lower loss.
    pub is_best: bool,
    /// The loss of the best n-gram model that counted the text, in nats per token.
    pub ngram_loss: Option<f64>,
    /// The least loss any model can have on the built-in stories, in nats per token.
    pub entropy_floor: Option<f64>,
    /// The loss of the best predictor that forgets earlier sentences of the built-in stories, in
    /// nats per token.
    pub forgetful_loss: Option<f64>,
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Reporter for Silent {}

/// Something that shows a run while it runs; none of its methods can fail or write into the run's
/// files.
pub trait Reporter {
    /// Training begins, at this step of so many.
    fn begin(&mut self, _run: &str, _first_step: u64, _max_steps: u64) {}
    /// A step was taken.
    fn step(&mut self, _report: &StepReport) {}
    /// The validation split was measured.
    fn evaluation(&mut self, _report: &EvalReport) {}
    /// The model wrote this at this step.
    fn sample(&mut self, _step: u64, _text: &str) {}
    /// Something a person should know.
    fn note(&mut self, _note: Note) {}
    /// Whether the person watching asked the run to end.
    fn stop_requested(&self) -> bool {
        false
    }
    /// Gives the terminal back; nothing is shown afterwards but notes.
    fn finish(&mut self) {}
}
