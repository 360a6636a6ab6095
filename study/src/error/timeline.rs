//! Why there is no timeline of a run.

use std::path::PathBuf;

use ember_training::error::LogError;

/// Why there is no timeline of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimelineError {
    /// There is nothing of that name.
    #[error("{path} does not exist; name a run's folder")]
    Missing {
        /// What was named.
        path: PathBuf,
    },
    /// There are no samples for programs.
    #[error(
        "{path} has no samples/samples.jsonl: it is no run, has not begun, or was made before samples were kept for programs"
    )]
    NoLog {
        /// What was named.
        path: PathBuf,
    },
    /// Nothing was sampled yet.
    #[error("{log} holds no sample yet; wait for the first, which sample_interval sets (0 means none)")]
    NoSample {
        /// The samples' log.
        log: PathBuf,
    },
    /// A log is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
}
