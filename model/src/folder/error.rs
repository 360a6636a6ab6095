//! What can be wrong with a model's folder.

use std::io;
use std::path::{Path, PathBuf};

use ember_host::file_error::FileError;

use crate::ShapeError;

/// Why a model's folder cannot be read or written. `what` goes on where the path ends, and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The system refuses.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file cannot be written whole.
    #[error("cannot write {}; check the free space and the permissions", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that should be a JSON object is none.
    #[error("{} is not a JSON object; download or write it again", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Where it ceases to be JSON.
        source: serde_json::Error,
    },
    /// A file is missing, cut short, changed since it was written, or no file at all.
    #[error("{} {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// `config.json` or `generation_config.json` says something that no model here computes.
    #[error("{}: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The key, its value, and what it may be.
        what: String,
    },
    /// `config.json` has a shape that no model can have.
    #[error("{}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// What is wrong with the shape.
        source: ShapeError,
    },
    /// The tensors are not those of the model that `config.json` describes.
    #[error("{}: {what}", path.display())]
    Mismatch {
        /// The file of the weights.
        path: PathBuf,
        /// Which tensor, and how it differs.
        what: String,
    },
    /// The folder holds no model.
    #[error("{} {what}", dir.display())]
    NoModel {
        /// The folder.
        dir: PathBuf,
        /// What it lacks.
        what: String,
    },
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

    pub(super) fn no_model(dir: &Path, what: impl Into<String>) -> Self {
        Self::NoModel { dir: dir.to_owned(), what: what.into() }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }
}
