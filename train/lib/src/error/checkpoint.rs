//! Why a checkpoint cannot be saved or taken up.

use std::path::{Path, PathBuf};

use super::cause::Cause;
use super::optimizer::OptimizerError;

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
    /// The run has none.
    #[error("{folder} holds no checkpoint")]
    None {
        /// Where they would be.
        folder: PathBuf,
    },
    /// The list of its files is gone.
    #[error("{file} is missing from its checkpoint; use another one")]
    NoChecksums {
        /// The list.
        file: PathBuf,
    },
    /// Inference's part of a checkpoint alone.
    #[error("{folder} holds no training state, only a model to generate with; resume a run folder instead")]
    NoState {
        /// The checkpoint.
        folder: PathBuf,
    },
    /// Where the run stands cannot be read.
    #[error("{file} is damaged; resume from another checkpoint")]
    DamagedState {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Where the run stands cannot be.
    #[error("{file} is damaged: fewer windows than steps")]
    ImpossibleState {
        /// The file.
        file: PathBuf,
    },
    /// The optimizer cannot take up its moments.
    #[error("{file}")]
    Moments {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: OptimizerError,
    },
    /// The average of the weights is gone, or was never there.
    #[error("{folder} is missing, so ema_decay was 0 when it was saved; put it back in config.toml")]
    NoAverage {
        /// Where it would be.
        folder: PathBuf,
    },
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
    /// The configuration or the text make another model.
    #[error("{run}: its config.toml or data no longer describe the model in its checkpoint; put back what was changed")]
    OtherModel {
        /// The run's folder.
        run: PathBuf,
    },
}

fn whole(latest: Option<&Path>) -> String {
    latest.map_or_else(String::new, |latest| format!("{} is whole; ", latest.display()))
}
