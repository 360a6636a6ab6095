//! This crate's errors.

use ember_kernels::{arena::ArenaError, limits::LimitError};

use crate::{WeightType, config::ShapeError, folder::FolderError};

/// Why a model cannot be built, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum Error {
    /// No model has this shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Its folder cannot be read or written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The model exceeds the device's limits.
    #[error(transparent)]
    Limits(#[from] LimitError),
    /// The device cannot multiply with weights of this type.
    #[error("weights in {}: {problem}", weights.name())]
    Weights { weights: WeightType, problem: String },
    /// The system refuses the memory that the weights need.
    #[error(transparent)]
    Memory(#[from] ArenaError),
}

/// This crate's `Result`.
pub type Result<T, E = Error> = std::result::Result<T, E>;
