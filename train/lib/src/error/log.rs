//! Why a log cannot be written or read.

use std::{io, path::PathBuf};

use ember_host::file_error::FileError;

/// What is said where a row cannot be appended.
pub const CANNOT_APPEND: &str = "cannot append; is the disk full?";

/// Why a log cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It cannot be opened, appended to or read.
    #[error("{path}: {problem}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What cannot be done, and what to look at.
        problem: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Rows cannot be taken away.
    #[error("{path}: cannot cut the log back; is the disk full?")]
    CutBack {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: FileError,
    },
    /// A line in its middle is broken.
    #[error("{path}: line {line} is not a row of this log ({reason}); remove that line")]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: serde_json::Error,
    },
    /// It is no text of JSON objects.
    #[error("{path} is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Another file cannot be made, read or removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A row that JSON cannot hold.
    #[error(transparent)]
    Unwritable(#[from] serde_json::Error),
}
