//! Why a run cannot go on along its gradients.

use std::path::PathBuf;

/// Why a run cannot go on along its gradients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// Too many batches were left out.
    #[error(
        "one more batch than max_skipped_batches = {most} had a loss or gradient that is not finite; step {step} is saved: look \
         at reports/, lower learning_rate in a new run, or resume with a larger one"
    )]
    SkippedTooMany {
        /// How many may be.
        most: u64,
        /// Where the run stands.
        step: u64,
    },
    /// Weights ceased to be finite.
    #[error("{parameter} {place:?} is no longer finite, though every gradient was; these weights are not saved: {}", match saved {
            Some(saved) => format!("{} is whole, and a resume goes on from there", saved.display()),
            None => "no checkpoint was saved yet; begin again with a lower learning_rate".to_owned(),
        })]
    DamagedWeights {
        /// The first parameter of which a value is not.
        parameter: String,
        /// Where the first stands in it.
        place: Vec<usize>,
        /// The last checkpoint.
        saved: Option<PathBuf>,
    },
}
