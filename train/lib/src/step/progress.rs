//! Where a run stands: with weights, moments and configuration, all that its next step depends on.

use ember_data::prepare::Manifest;
use serde::{Deserialize, Serialize};

use super::{gradient::LossScale, guard::Guard};

/// Where a run stands, and in which text. With the configuration's seed, it determines every random
/// draw of a step.
///
/// A state that lacks a field comes from another version and must be refused. serde's derive reads
/// a missing `Option` as `None`; `deserialize_with` makes the field required.
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
    /// Checksums of the text whose windows are counted; `None` before the first session.
    #[serde(deserialize_with = "Option::deserialize")]
    pub data: Option<DataChecksums>,
    /// Windows in one pass over the text. Another version of the program may cut the text
    /// elsewhere. `None` before the first session, and in checkpoints that did not store it yet.
    pub windows_per_pass: Option<u64>,
    /// The evaluations of earlier steps. This step is saved before it is evaluated, so its own
    /// evaluation is in a separate file of the checkpoint.
    pub evaluations: Evaluations,
    /// The guard's state.
    pub guard: Guard,
    /// The factor on the loss in float16.
    pub loss_scale: LossScale,
    /// Whether the GPU's matrix products are autotuned. False in checkpoints that did not store it
    /// yet.
    #[serde(default)]
    pub tuned: bool,
}

/// Checksums that identify the prepared text and its tokenizer: 16 hexadecimal digits each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataChecksums {
    /// Checksum of the training split.
    pub train: String,
    /// Checksum of the validation split.
    pub val: String,
    /// Checksum of `tokenizer.json`.
    pub tokenizer: String,
}

impl DataChecksums {
    /// The checksums in a prepared folder's manifest.
    pub fn new(manifest: &Manifest) -> Self {
        let (train, val) = (manifest.train.checksum.clone(), manifest.val.checksum.clone());
        Self { train, val, tokenizer: manifest.tokenizer_checksum.clone() }
    }

    /// The first part that differs in `other`, in words; `None` if all are equal.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let parts = [
            (self.tokenizer == other.tokenizer, "tokenizer"),
            (self.train == other.train, "training text"),
            (self.val == other.val, "held-out text"),
        ];
        parts.into_iter().find(|(same, _)| !same).map(|(_, what)| what)
    }
}

/// The evaluations up to a step: which is the best, and how many came after it. `best`, `patience`
/// and the removal of old checkpoints depend on this alone and never on the logs. So it is saved in
/// every checkpoint, and again beside it once that checkpoint has been evaluated.
///
/// For example, if the disk is full at step 10:
///
/// ```text
/// step  loss  checkpoint  best     since_best  best_saved
///    5   3.0  saved       step  5           0     step  5
///   10   1.0  not saved   step 10           0     step  5
///   15   2.0  saved       step 10           1     step 15
///   20   2.5  saved       step 10           2     step 15
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluations {
    /// The step last evaluated.
    #[serde(deserialize_with = "Option::deserialize")]
    pub last: Option<u64>,
    /// The evaluation with the lowest validation loss.
    #[serde(deserialize_with = "Option::deserialize")]
    pub best: Option<Best>,
    /// Evaluations after `best`.
    pub since_best: u64,
    /// The evaluation with the lowest loss among the saved checkpoints, to which the run's file
    /// `best` points. It differs from `best` if that one could not be saved because the disk was
    /// full.
    #[serde(deserialize_with = "Option::deserialize")]
    pub best_saved: Option<Best>,
    /// The temperature that divides the logits of checkpoints saved after `last`, in a calibrated
    /// run ([`crate::run::temperature`]).
    pub temperature: f64,
    /// The temperature with which `last` was saved and evaluated; `None` if the run is not
    /// calibrated.
    #[serde(deserialize_with = "Option::deserialize")]
    pub last_temperature: Option<f64>,
}

impl Default for Evaluations {
    fn default() -> Self {
        let (last, best, best_saved, last_temperature) = (None, None, None, None);
        Self { last, best, since_best: 0, best_saved, temperature: 1.0, last_temperature }
    }
}

/// An evaluation that is the best, or a candidate for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The step that was evaluated.
    pub step: u64,
    /// Its loss, in nats per token.
    pub val_loss: f64,
}

impl Best {
    fn is_below(self, other: Option<Self>) -> bool {
        self.val_loss.is_finite() && other.is_none_or(|other| self.val_loss < other.val_loss)
    }
}

impl Evaluations {
    /// Records the evaluation of `step`; returns whether it is the best so far. A loss that is not
    /// finite never is.
    pub fn record(&mut self, step: u64, val_loss: f64) -> bool {
        let evaluated = Best { step, val_loss };
        let is_best = evaluated.is_below(self.best);
        (self.last, self.last_temperature) = (Some(step), None);
        if is_best {
            self.best = Some(evaluated);
        }
        self.since_best = if is_best { 0 } else { self.since_best + 1 };
        is_best
    }

    /// Records that the checkpoint of an evaluated step was saved; returns whether it is the best
    /// of those saved.
    pub fn record_saved(&mut self, evaluated: Best) -> bool {
        let is_best = evaluated.is_below(self.best_saved);
        if is_best {
            self.best_saved = Some(evaluated);
        }
        is_best
    }

    /// Sets the temperature of the checkpoints after `last`; returns that of `last`.
    pub fn change_temperature(&mut self, next: f64) -> f64 {
        let was = std::mem::replace(&mut self.temperature, next);
        self.last_temperature = Some(was);
        was
    }

    /// The temperature that divides a calibrated run's logits at `step`, the same in its
    /// checkpoint, its evaluation and its samples. The evaluation finds a new one for the steps
    /// after it.
    pub fn temperature_at(&self, step: u64) -> f64 {
        let then = self.last_temperature.filter(|_| self.last == Some(step));
        then.unwrap_or(self.temperature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_finite_loss_is_the_best_and_all_others_count() {
        let mut evaluations = Evaluations::default();
        let recorded: Vec<_> =
            [(5, 3.0), (10, 2.0), (15, 2.0), (20, f64::NAN), (25, f64::INFINITY), (30, 1.5), (35, 1.6)]
                .map(|(step, loss)| (evaluations.record(step, loss), evaluations.since_best))
                .into();
        let expected = [(true, 0), (true, 0), (false, 1), (false, 2), (false, 3), (true, 0), (false, 1)];
        assert_eq!(recorded, expected);
        assert_eq!(evaluations.best, Some(Best { step: 30, val_loss: 1.5 }));
        assert_eq!(evaluations.last, Some(35));
    }

    #[test]
    fn a_step_that_was_not_saved_is_the_best_for_patience_alone() {
        let mut evaluations = Evaluations::default();
        for (step, val_loss, is_saved, is_best) in
            [(5, 3.0, true, true), (10, 1.0, false, false), (15, 2.0, true, true), (20, 2.5, true, false)]
        {
            evaluations.record(step, val_loss);
            assert_eq!(is_saved && evaluations.record_saved(Best { step, val_loss }), is_best, "{step}");
        }
        assert_eq!(evaluations.best_saved, Some(Best { step: 15, val_loss: 2.0 }));
        assert_eq!((evaluations.best, evaluations.since_best), (Some(Best { step: 10, val_loss: 1.0 }), 2));
        assert!(!evaluations.record_saved(Best { step: 25, val_loss: f64::NAN }));
    }
}
