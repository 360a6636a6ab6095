//! Why something cannot be measured.

use std::{error::Error as StdError, path::PathBuf};

use ember_data::{prepare, source, tokenizer, tokens, windows};
use ember_host::{file_error::FileError, output};
use ember_training::error::{Cause, ConfigError, DoesNotFit, Error as TrainingError, LogError, wants_room};

/// What a function of this crate returns that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Ends what is measured, unless the caller says to go on.
pub(crate) fn proceed_if(goes_on: bool) -> Result<()> {
    if goes_on { Ok(()) } else { Err(Error::Stopped) }
}

/// Why something cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum Error {
    /// There is no run in this folder.
    #[error("{0} does not exist; name a run's folder")]
    Missing(PathBuf),
    /// A run, and no log of its losses.
    #[error("{0} has no metrics.jsonl: it is no run, or has not begun to train; name a run's folder")]
    NoMetrics(PathBuf),
    /// A run, and no samples for programs.
    #[error("{0} has no samples/samples.jsonl: it is no run, or has not begun")]
    NoSamples(PathBuf),
    /// No run has a loss: the log of one of them.
    #[error("{0} holds no loss yet; wait for the first logged step")]
    NoLoss(PathBuf),
    /// Nothing was sampled yet: the samples' log.
    #[error("{0} holds no sample yet; wait for the first, which sample_interval sets (0 means none)")]
    NoSample(PathBuf),
    /// A run's configuration is broken.
    #[error("{path} is not TOML; put back what was changed")]
    NotToml { path: PathBuf, source: toml::de::Error },
    /// A text has so many bytes that it cannot be searched.
    #[error("the training text has {:.1} GB, of which at most 2.1 can be searched at once; name a part of it", *.0 as f64 / 1e9)]
    TooLong(usize),
    /// Nothing is logged that a picture could show.
    #[error("there is no loss to plot yet; train for at least one logged step")]
    NothingToPlot,
    /// No run has this, which the curves are to be drawn over.
    #[error("no loss can be drawn over {0}; try another")]
    NoAxis(&'static str),
    /// The drawing library fails.
    #[error("the {what} cannot be drawn: {problem}")]
    Drawing { what: &'static str, problem: String },
    /// A picture cannot be written.
    #[error("the {what} cannot be written; {}", remedy(source))]
    Write { what: &'static str, source: output::Error },
    /// The program allocates through another allocator than
    /// [`Counting`](ember_training::memory::counting::Counting).
    #[error("this program does not count its memory, as ember-train does")]
    NotCounted,
    /// The device does not report its memory.
    #[error("the device does not say how much memory is in use; use the CPU")]
    Silent,
    /// The device failed.
    #[error("the device failed: {0}; try the CPU")]
    Device(String),
    /// A step takes longer than the time that there is for all of them.
    #[error(
        "one step of this model takes about {step}, and {left} are there for the run; give it more time, or set a smaller model"
    )]
    NoStepFits { step: String, left: String },
    /// No size is left to plan with.
    #[error("there is nothing to plan")]
    NothingToPlan,
    /// A step failed before, and took the model with it.
    #[error("the model is gone")]
    NoModel,
    /// The measured runs that are kept in the program are broken.
    #[error("study/src/plan/points.json")]
    Points(#[source] serde_json::Error),
    /// The caller said to stop.
    #[error("stopped")]
    Stopped,
    /// What is measured of training.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// What this crate stands on.
    #[error(transparent)]
    Other(Cause),
}

/// What to do where a picture cannot be written.
fn remedy(error: &output::Error) -> &'static str {
    match error {
        output::Error::File(error) if wants_room(&error.source) => "free some space",
        _ => "name another file",
    }
}

macro_rules! from_below {
    ($variant:ident: $($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(error.into())
            }
        }
    )*};
}

from_below!(Training: ConfigError, DoesNotFit, LogError);
from_below!(Other: source::Error, prepare::OpenError, tokenizer::Error, tokens::Error, windows::Error);
from_below!(Other: ember_decoding::Error, ember_model::Error, FileError, output::Error);

impl Error {
    /// What `cause` is, where it is an [`Error`] that only wraps it, or one of the trainer's; else
    /// `cause` itself. The one may wrap the other: a plan's errors are a run's, and hold the trainer's.
    pub fn unwrapped<'a>(cause: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
        match cause.downcast_ref::<Self>() {
            Some(Self::Training(error)) => Self::unwrapped(error),
            Some(Self::Other(error)) => &**error,
            Some(_) => cause,
            None => {
                let inner = TrainingError::unwrapped(cause);
                if inner.is::<Self>() { Self::unwrapped(inner) } else { inner }
            }
        }
    }
}
