//! What the evaluations of a run have decided so far: which step is the best, and for how long it
//! has been.
//!
//! `best`, `patience` and what is removed go by this alone, so it is saved with every checkpoint,
//! and again beside it once the checkpoint itself is evaluated: the logs are for people.

use serde::{Deserialize, Serialize};

/// The evaluations up to a step, as far as anything hangs on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluations {
    /// The step last evaluated.
    pub last: Option<u64>,
    /// The one with the lowest validation loss.
    pub best: Option<Best>,
    /// How many came after that one.
    pub since_best: u64,
}

/// The evaluation with the lowest validation loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The step that was evaluated.
    pub step: u64,
    /// Its loss, in nats per token.
    pub val_loss: f64,
}

impl Evaluations {
    /// Takes in the evaluation of `step`; whether it is the best. A loss that is not finite never
    /// is.
    pub fn record(&mut self, step: u64, val_loss: f64) -> bool {
        let is_best = val_loss.is_finite() && self.best.is_none_or(|best| val_loss < best.val_loss);
        self.last = Some(step);
        if is_best {
            self.best = Some(Best { step, val_loss });
        }
        self.since_best = if is_best { 0 } else { self.since_best + 1 };
        is_best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_finite_loss_is_the_best_and_all_others_count() {
        let mut evaluations = Evaluations::default();
        let told: Vec<_> = [(5, 3.0), (10, 2.0), (15, 2.0), (20, f64::NAN), (25, f64::INFINITY), (30, 1.5), (35, 1.6)]
            .map(|(step, loss)| (evaluations.record(step, loss), evaluations.since_best))
            .into();
        let expected = [(true, 0), (true, 0), (false, 1), (false, 2), (false, 3), (true, 0), (false, 1)];
        assert_eq!(told, expected);
        assert_eq!(evaluations.best, Some(Best { step: 30, val_loss: 1.5 }));
        assert_eq!(evaluations.last, Some(35));
    }
}
