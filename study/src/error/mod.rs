//! Why something cannot be measured.

mod compare;
mod copied;
mod meter;
mod plan;
mod plot;
mod timeline;

use std::error::Error as StdError;

use ember_data::{prepare, source, tokenizer, tokens, windows};
use ember_host::{file_error::FileError, output};
use ember_training::error::{Cause, ConfigError, DoesNotFit, LogError};

pub use compare::CompareError;
pub use copied::CopiedError;
pub use meter::MeterError;
pub use plan::PlanError;
pub use plot::PlotError;
pub use timeline::TimelineError;

/// What a function of this crate returns that can fail in more than one way.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What is measured of training.
    #[error(transparent)]
    Training(#[from] ember_training::error::Error),
    /// What is searched for copies.
    #[error(transparent)]
    Copied(#[from] CopiedError),
    /// What is compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// The texts of a run.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    /// What is planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A picture.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// What measures.
    #[error(transparent)]
    Meter(#[from] MeterError),
    /// What this crate stands on.
    #[error(transparent)]
    Other(Cause),
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
    /// `cause` itself.
    pub fn unwrapped<'a>(cause: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
        match cause.downcast_ref::<Self>() {
            None => ember_training::error::Error::unwrapped(cause),
            Some(Self::Training(error)) => ember_training::error::Error::unwrapped(error),
            Some(Self::Copied(error)) => error,
            Some(Self::Compare(error)) => error,
            Some(Self::Timeline(error)) => error,
            Some(Self::Plan(error)) => error,
            Some(Self::Plot(error)) => error,
            Some(Self::Meter(error)) => error,
            Some(Self::Other(error)) => &**error,
        }
    }
}
