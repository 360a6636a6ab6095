//! Errors: why a run cannot begin or go on, by subject.

mod begin;
mod going;

use std::error::Error as StdError;

use ember_data::{prepare, tokenizer, tokens, windows};
use ember_decoding::run_folder::FindError;
use ember_host::file_error::FileError;
use ember_model::folder::FolderError as ModelFolderError;
use ember_model::{ShapeError, device::DeviceError};

pub use begin::{Cause, ConfigError, DoesNotFit, InitError, TextError};
pub use going::{CheckpointError, DiskFull, FolderError, GroupError, GuardError, LogError, OptimizerError};
pub use going::{remedy, wants_room};

/// The result of functions that can fail in more than one way.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot run.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It needs more memory than there is.
    #[error(transparent)]
    Memory(#[from] DoesNotFit),
    /// The run's folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The checkpoint to begin from.
    #[error(transparent)]
    Init(#[from] InitError),
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The optimizer.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// The processes.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// What the guard found.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// A log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskFull),
    /// Another file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(String),
    /// A dependency, or a caller's closure.
    #[error(transparent)]
    Other(Cause),
}

macro_rules! from_below {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Other(error.into())
            }
        }
    )*};
}

from_below!(prepare::Error, prepare::OpenError, tokenizer::Error, tokens::Error, windows::Error);
from_below!(ember_model::Error, ShapeError, DeviceError, ModelFolderError, serde_json::Error);
from_below!(FindError);

impl From<ember_decoding::Error> for Error {
    fn from(error: ember_decoding::Error) -> Self {
        match error {
            ember_decoding::Error::Device(problem) => Self::Device(problem),
            error => Self::Other(error.into()),
        }
    }
}

impl Error {
    /// The error inside `cause` if that is an [`Error`] that only wraps it; else `cause` itself.
    pub fn unwrapped<'a>(cause: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
        let boxed = cause.downcast_ref::<Box<Self>>().map(|error| &**error);
        match boxed.or(cause.downcast_ref::<Self>()) {
            None | Some(Self::Device(_)) => cause,
            Some(Self::Config(error)) => error,
            Some(Self::Memory(error)) => error,
            Some(Self::Folder(error)) => error,
            Some(Self::Text(error)) => error,
            Some(Self::Init(error)) => error,
            Some(Self::Checkpoint(error)) => error,
            Some(Self::Optimizer(error)) => error,
            Some(Self::Group(error)) => error,
            Some(Self::Guard(error)) => error,
            Some(Self::Log(error)) => error,
            Some(Self::Disk(error)) => error,
            Some(Self::File(error)) => error,
            Some(Self::Other(error)) => &**error,
        }
    }

    /// The error and its causes, each unwrapped.
    pub fn chain(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        let mut next = Some(Self::unwrapped(self));
        std::iter::from_fn(move || {
            let cause = next?;
            next = cause.source().map(Self::unwrapped);
            Some(cause)
        })
    }

    /// Whether something could not be written because the disk was full.
    pub fn is_full_disk(&self) -> bool {
        self.chain().any(|cause| cause.is::<DiskFull>() || cause.downcast_ref().is_some_and(wants_room))
    }
}
