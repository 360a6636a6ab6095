//! Why there is no model.

use ember_kernels::{arena::ArenaError, limits::LimitError};

use crate::{WeightType, config::ShapeError, folder::FolderError};

/// Why a model cannot be built, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum Error {
    /// No model has this shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Its folder cannot be read or written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The device's limits do not bear the model.
    #[error(transparent)]
    Limits(#[from] LimitError),
    /// The device cannot multiply with weights stored like this.
    #[error("weights in {}: {problem}", weights.name())]
    Weights { weights: WeightType, problem: String },
    /// The system does not give the memory that the weights need.
    #[error(transparent)]
    Memory(#[from] ArenaError),
}

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
