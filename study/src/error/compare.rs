//! Why runs cannot be compared.

use std::path::PathBuf;

use ember_host::file_error::FileError;
use ember_training::error::LogError;

/// Why runs cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// There is nothing of that name.
    #[error("{path} does not exist; name a run's folder")]
    Missing {
        /// What was named.
        path: PathBuf,
    },
    /// There is no log.
    #[error("{path} has no metrics.jsonl: it is no run, or has not begun to train; name a run's folder")]
    NoLog {
        /// What was named.
        path: PathBuf,
    },
    /// No run has a loss.
    #[error("{log} holds no loss yet; wait for the first logged step")]
    NoLoss {
        /// A log.
        log: PathBuf,
    },
    /// A configuration is broken.
    #[error("{path} is not TOML; put back what was changed")]
    NotToml {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: toml::de::Error,
    },
    /// A log is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Another file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}
