//! Where a run stands: all that its next step follows from beside weights, moments and
//! configuration.

use ember_data::prepare::Manifest;
use serde::{Deserialize, Serialize};

use super::{gradient::LossScale, guard::Guard};
use crate::evaluations::Evaluations;

/// Where a run stands, and in what. With the configuration's seed, every random draw of a step
/// follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps taken.
    pub step: u64,
    /// Windows read: the index of the next one, which is the position in the data.
    pub windows: u64,
    /// Tokens learned from.
    pub tokens: u64,
    /// Seconds spent, over all sessions.
    pub elapsed_s: f64,
    /// Sum of the losses of the steps since the last report.
    pub unreported_loss: f64,
    /// Number of those steps.
    pub unreported_steps: u32,
    /// The text that `windows` counts in; `None` before the first session.
    #[serde(default)]
    pub data: Option<DataChecksums>,
    /// What was found by evaluating earlier steps. What is found by evaluating this one, which is
    /// saved first, is kept beside it .
    #[serde(default)]
    pub evaluations: Evaluations,
    /// What the guard remembers.
    #[serde(default)]
    pub guard: Guard,
    /// What the loss is multiplied by in float16.
    #[serde(default)]
    pub loss_scale: LossScale,
}

/// The prepared text and its tokenizer, by which they can be told from others: 16 hexadecimal
/// digits each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataChecksums {
    /// Of the tokens to learn from.
    pub train: String,
    /// Of the tokens held out.
    pub val: String,
    /// Of `tokenizer.json`.
    pub tokenizer: String,
}

impl DataChecksums {
    /// What a prepared folder's manifest says.
    pub fn new(manifest: &Manifest) -> Self {
        let (train, val) = (manifest.train.checksum.clone(), manifest.val.checksum.clone());
        Self { train, val, tokenizer: manifest.tokenizer_checksum.clone() }
    }

    /// What of `other` is not the same, in words; `None` where all of it is.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let parts = [
            (self.tokenizer == other.tokenizer, "tokenizer"),
            (self.train == other.train, "training text"),
            (self.val == other.val, "held-out text"),
        ];
        parts.into_iter().find(|(same, _)| !same).map(|(_, what)| what)
    }
}
