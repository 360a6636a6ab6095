//! Why something cannot be measured.

use std::{error::Error as StdError, path::PathBuf};

use ember_data::{prepare, source, tokenizer, tokens, windows};
use ember_host::{file_error::FileError, output};
use ember_training::error::{Cause, ConfigError, DoesNotFit, Error as TrainingError, LogError, wants_room};

/// This crate's `Result`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error [`Error::Stopped`], unless the caller says to go on.
pub(crate) fn proceed_if(goes_on: bool) -> Result<()> {
    if goes_on { Ok(()) } else { Err(Error::Stopped) }
}

/// Why something cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum Error {
    /// The run's folder does not exist.
    #[error("{0} does not exist; name a run's folder")]
    Missing(PathBuf),
    /// A folder without a log of losses.
    #[error("{0} has no metrics.jsonl: it is not a run, or has not started training; name a run's folder")]
    NoMetrics(PathBuf),
    /// A folder without samples in JSON.
    #[error("{0} has no samples/samples.jsonl: it is not a run, or has not started")]
    NoSamples(PathBuf),
    /// The named log, and that of every other run, has no loss yet.
    #[error("{0} holds no loss yet; wait for the first logged step")]
    NoLoss(PathBuf),
    /// The named log has no sample yet.
    #[error("{0} holds no sample yet; wait for the first, which sample_interval sets (0 means none)")]
    NoSample(PathBuf),
    /// A run's configuration is broken.
    #[error("{path} is not valid TOML; put back what was changed")]
    NotToml { path: PathBuf, source: toml::de::Error },
    /// A text is too large to be searched.
    #[error("the training text has {:.1} GB, of which at most 2.1 can be searched at once; name a part of it", *.0 as f64 / 1e9)]
    TooLong(usize),
    /// Nothing that a picture could show is logged.
    #[error("there is no loss to plot yet; train for at least one logged step")]
    NothingToPlot,
    /// No run has this quantity, over which the curves are to be drawn.
    #[error("no loss can be drawn over {0}; try another")]
    NoAxis(&'static str),
    /// On a logarithmic scale no loss has a place.
    #[error("no loss is above 0, as a logarithmic scale needs; draw them on a linear one")]
    NoLogarithm,
    /// The drawing library failed.
    #[error("the {what} cannot be drawn: {problem}")]
    Drawing { what: &'static str, problem: String },
    /// A picture cannot be written.
    #[error("the {what} cannot be written; {}", remedy(source))]
    Write { what: &'static str, source: output::Error },
    /// The program allocates through another allocator than
    /// [`Counting`](ember_training::memory::counting::Counting).
    #[error("this program does not count its memory, as ember-train does")]
    NotCounted,
    /// The device does not report its memory in use.
    #[error("the device does not report its memory use; use the CPU")]
    Silent,
    /// The device failed.
    #[error("the device failed: {0}; try the CPU")]
    Device(String),
    /// One step takes longer than the time for the whole run.
    #[error(
        "one step of this model takes about {step}, and {left} are available; give it more time, or set a smaller model"
    )]
    NoStepFits { step: String, left: String },
    /// No candidate is left to plan with.
    #[error("there is nothing to plan")]
    NothingToPlan,
    /// An earlier step failed, and lost the model.
    #[error("the model is gone")]
    NoModel,
    /// The measured runs built into the program are malformed.
    #[error("study/src/plan/points.json")]
    Points(#[source] serde_json::Error),
    /// The caller said to stop.
    #[error("stopped")]
    Stopped,
    /// An error of training.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// An error of the libraries below.
    #[error(transparent)]
    Other(Cause),
}

/// What to do if a picture cannot be written.
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
    /// The error inside `cause`, if it is an [`Error`] that only wraps one, or one of the
    /// trainer's; else `cause` itself. Either may wrap the other: a plan's errors are a run's, and
    /// contain the trainer's.
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
