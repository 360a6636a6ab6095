//! What can be wrong with a model's folder.

use std::{io, path::Path, path::PathBuf};

use ember_host::file_error::FileError;

use crate::ShapeError;

/// Why a model's folder cannot be read or written. `what` goes on where the path ends, and says
/// what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum FolderError {
    /// The system refuses.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file cannot be written whole.
    #[error("cannot write {path}; check the free space and the permissions")]
    Write { path: PathBuf, source: io::Error },
    /// A file that should be a JSON object is none.
    #[error("{path} is not a JSON object; download or write it again")]
    NotJson { path: PathBuf, source: serde_json::Error },
    /// The folder holds no model, or a file of it is missing, cut short, changed since it was
    /// written, or no file at all.
    #[error("{path} {what}")]
    Damaged { path: PathBuf, what: String },
    /// The folder holds the weights of a model, and not the file that says of which.
    #[error(
        "{0} holds no config.json, which says what model its weights are; put that file back: another checkpoint of the \
         same run has it, or whatever the folder was copied from"
    )]
    LostConfig(PathBuf),
    /// `config.json` has a shape that no model can have.
    #[error("{path}")]
    Shape { path: PathBuf, source: ShapeError },
    /// A file says something that no model here computes, or its tensors are not those of the model
    /// that `config.json` describes.
    #[error("{path}: {what}")]
    Mismatch { path: PathBuf, what: String },
    /// No class of transformers computes such a model.
    #[error("{0}")]
    NoClass(String),
}

/// What this module returns.
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
