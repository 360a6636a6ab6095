//! Why the text of a run cannot be found.

use std::path::PathBuf;

use ember_host::file_error::FileError;

use super::cause::Cause;

/// Why the text of a run cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// There is nothing of that name.
    #[error("{0} does not exist; name a run's folder")]
    Missing(PathBuf),
    /// A checkpoint that stands by itself.
    #[error("{0} is a checkpoint without its run, so what it was trained on is not known; name a run's folder")]
    NoRun(PathBuf),
    /// A folder that a configuration cannot name, since its name is not UTF-8.
    #[error("the name of {0} is not UTF-8; rename it")]
    NotUtf8(PathBuf),
    /// The run's tokens cannot be read.
    #[error("the text of {run}")]
    OfRun {
        /// The run's folder.
        run: PathBuf,
        /// Why not.
        source: Cause,
    },
    /// A file or folder cannot be found.
    #[error(transparent)]
    File(#[from] FileError),
}
