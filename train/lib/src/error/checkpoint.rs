//! Why a checkpoint cannot be saved or taken up.

use std::path::{Path, PathBuf};

use super::{cause::Cause, optimizer::OptimizerError};

/// Why a checkpoint cannot be saved or taken up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It cannot be written; all that was saved before is there.
    #[error("could not save step {step} ({}free some space and resume)", whole(latest.as_deref()))]
    Save {
        /// The step.
        step: u64,
        /// The run's folder.
        run: PathBuf,
        /// The last checkpoint, which is whole.
        latest: Option<PathBuf>,
        /// Why not.
        source: Cause,
    },
    /// The run has none in this folder.
    #[error("{0} holds no checkpoint")]
    None(PathBuf),
    /// The list of its files, this one, is gone.
    #[error("{0} is missing from its checkpoint; use another one")]
    NoChecksums(PathBuf),
    /// Inference's part of a checkpoint alone is in this folder.
    #[error("{0} holds no training state, only a model to generate with; resume a run folder instead")]
    NoState(PathBuf),
    /// Where the run stands cannot be read.
    #[error("{file} is damaged; resume from another checkpoint")]
    DamagedState {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Where the run stands by this file cannot be.
    #[error("{0} is damaged: fewer windows than steps")]
    ImpossibleState(PathBuf),
    /// The optimizer cannot take up its moments.
    #[error("{file}")]
    Moments {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: OptimizerError,
    },
    /// The average of the weights is gone from this folder, or was never there.
    #[error("{0} is missing, so ema_decay was 0 when it was saved; put it back in config.toml")]
    NoAverage(PathBuf),
    /// It was learned from another text.
    #[error("{data} has another {what} than the one that {run} has learned from; put the folder back as it was")]
    OtherText {
        /// The text's folder.
        data: PathBuf,
        /// What is not the same.
        what: &'static str,
        /// The run's folder.
        run: PathBuf,
    },
    /// The configuration or the text in this run's folder make another model.
    #[error("{0}: its config.toml or data no longer describe the model in its checkpoint; put back what was changed")]
    OtherModel(PathBuf),
}

fn whole(latest: Option<&Path>) -> String {
    latest.map_or_else(String::new, |latest| format!("{} is whole; ", latest.display()))
}
