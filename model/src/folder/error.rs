//! Errors of a model's folder.

use std::{io, path::Path, path::PathBuf};

use ember_host::file_error::FileError;

use crate::ShapeError;

/// Why a model's folder cannot be read or written. `what` continues the sentence after the path,
/// and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum FolderError {
    /// The operating system refuses.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file cannot be written whole.
    #[error("cannot write {path}; check the free space and the permissions")]
    Write { path: PathBuf, source: io::Error },
    /// A file that should be a JSON object is not one.
    #[error("{path} is not a JSON object; download or write it again")]
    NotJson { path: PathBuf, source: serde_json::Error },
    /// The folder holds no model, or one of its files is missing, truncated, changed since it was
    /// written, or not a regular file.
    #[error("{path} {what}")]
    Damaged { path: PathBuf, what: String },
    /// The folder holds a model's weights, but not the file that says which model's.
    #[error(
        "{0} has no config.json, which describes the model; copy it from another checkpoint of the same run, or from where \
         the folder came from"
    )]
    LostConfig(PathBuf),
    /// `config.json` has a shape that no model can have.
    #[error("{path}")]
    Shape { path: PathBuf, source: ShapeError },
    /// A file describes something that no model here computes, or its tensors are not those of the
    /// model that `config.json` describes.
    #[error("{path}: {what}")]
    Mismatch { path: PathBuf, what: String },
    /// No class of transformers computes such a model.
    #[error("{0}")]
    NoClass(String),
}

/// This module's `Result`.
pub type Result<T, E = FolderError> = std::result::Result<T, E>;

impl FolderError {
    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn mismatch(path: &Path, what: impl Into<String>) -> Self {
        Self::Mismatch { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }
}
