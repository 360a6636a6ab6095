//! What a run tells: to the terminal while it runs, to `metrics.jsonl` and TensorBoard for ever, and as a picture at the end.
//!
//! It is told plain numbers and holds no tensor; what it is told never changes what is learned.

pub mod html;
pub mod jsonl;
mod metrics;
pub mod records;
mod tensorboard;
pub mod units;

pub use metrics::{Row, RunFacts};
pub use records::Records;

use std::io;
use std::path::PathBuf;

use ember_host::file_error::FileError;

use crate::note::Note;

/// Why a log cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It cannot be opened.
    #[error("{}: cannot open; check that the run folder may be written to", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A row cannot be appended.
    #[error("{}: cannot append; is the disk full?", path.display())]
    Append {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Rows cannot be taken away.
    #[error("{}: cannot cut the log back; is the disk full?", path.display())]
    CutBack {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: FileError,
    },
    /// It cannot be read.
    #[error("{}: cannot read the log", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line in its middle is broken.
    #[error("{}: line {line} is not a row of this log ({reason}); remove that line", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: serde_json::Error,
    },
    /// It is no text of JSON objects.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Another file cannot be made, read or removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A row that JSON cannot hold.
    #[error(transparent)]
    Unwritable(#[from] serde_json::Error),
}

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
    /// The same of the averaged weights, where an average is kept.
    pub ema_val_loss: Option<f64>,
    /// Whether no evaluation of this run was lower.
    pub is_best: bool,
    /// The least loss any model can have on the built-in stories, in nats per token.
    pub entropy_floor: Option<f64>,
    /// The loss of the best predictor that forgets earlier sentences of the built-in stories, in nats per token.
    pub forgetful_loss: Option<f64>,
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Reporter for Silent {}

/// Something that shows a run while it runs; none of its methods can fail or write into the run's files.
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
