//! Why a log cannot be written or read.

use std::io;
use std::path::PathBuf;

use ember_host::file_error::FileError;

/// Why a log cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It cannot be opened.
    #[error("{path}: cannot open; check that the run folder may be written to")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A row cannot be appended.
    #[error("{path}: cannot append; is the disk full?")]
    Append {
        /// The file.
        path: PathBuf,
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
    /// It cannot be read.
    #[error("{path}: cannot read the log")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
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
