//! A row of `metrics.jsonl`, the log of a run's numbers; `docs/metrics.md` has every key with its
//! unit.

use serde::{Deserialize, Serialize};

/// Makes the row of these keys, each of which is written where it applies.
macro_rules! row {
    ($($(#[$meaning:meta])* $key:ident: $type:ty,)*) => {
        /// One line; each key where it applies. Losses are nats per token. A number that is not
        /// finite is written as null.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Row {
            /// Optimizer steps taken.
            pub step: u64,
            $(
                $(#[$meaning])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )*
        }
    };
}

row! {
    /// Mean training loss since the row before.
    train_loss: f64,
    /// Loss on the validation split.
    val_loss: f64,
    /// The same in bits per byte of the text, which compares whatever the tokens are.
    bits_per_byte: f64,
    /// The loss that the model expected there.
    entropy: f64,
    /// What its logits are divided by.
    temperature: f64,
    /// Loss there of the averaged weights.
    ema_val_loss: f64,
    /// The built-in stories' entropy on the validation split: no model can be lower.
    entropy_floor: f64,
    /// The loss there of the best predictor that forgets earlier sentences.
    forgetful_loss: f64,
    /// The loss there of the best n-gram model that counted the text.
    ngram_loss: f64,
    /// The rate of this step.
    learning_rate: f64,
    /// Global norm of the gradient before clipping.
    grad_norm: f64,
    /// Target tokens learned from so far.
    tokens: u64,
    /// Training speed since the row before.
    tokens_per_s: f64,
    /// Model FLOP utilisation, from 0 to 1.
    mfu: f64,
    /// Memory in use on the device.
    memory_bytes: u64,
    /// Time since the run began, earlier sessions included.
    elapsed_s: f64,
    /// Batches left out so far, this one included, where a batch was left out on the way to this
    /// step.
    skipped: u64,
    /// How many times the usual norm a gradient had that was a spike: left out where `skipped` is
    /// there too, else scaled down.
    spike: f64,
    /// The first window of the batch that was left out or was a spike.
    window: u64,
    /// Whether the gradient of this step was scaled down to `grad_clip`.
    clipped: bool,
    /// What this evaluation took.
    eval_s: f64,
    /// What saving has taken since the row of a training step before.
    save_s: f64,
    /// What sampling text has taken since the row of a training step before.
    sample_s: f64,
    /// What the run is; in its first row alone.
    run: RunFacts,
    /// The new length of a run that keeps to a time, in steps, where it changed.
    max_steps: u64,
}

/// The last step that was taken by the time that these rows were logged.
pub fn last_step(rows: &[Row]) -> Option<u64> {
    // The row of a batch that was left out stands under a step that was not taken with it.
    rows.iter().filter(|row| row.skipped.is_none()).map(|row| row.step).max()
}

/// What the rows below it are about: what a reader of the log alone would not know. The
/// configuration is in `config.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    /// The program that began the run.
    pub version: String,
    /// The device that it began on.
    pub device: String,
    /// Trainable values of the model.
    pub parameters: u64,
    /// Different tokens.
    pub vocab_size: u64,
    /// Target tokens of an optimizer step.
    pub tokens_per_step: u64,
    /// Optimizer steps of the whole run.
    pub max_steps: u64,
    /// Tokens to learn from.
    pub train_tokens: u64,
    /// Tokens held out.
    pub val_tokens: u64,
    /// Floating-point operations a second of which `mfu` is the share, where they are known.
    pub peak_flops: Option<f64>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_applies_is_written() {
        let row = Row { step: 3, train_loss: Some(1.5), ..Row::default() };
        assert_eq!(serde_json::to_string(&row).unwrap(), "{\"step\":3,\"train_loss\":1.5}");
    }

    /// Rows of older and newer programs can be read: what is not known is passed over.
    #[test]
    fn a_key_of_another_version_is_no_error() {
        let row: Row = serde_json::from_str("{\"step\":3,\"surprise\":[1],\"run\":{\"device\":\"cpu\"}}").unwrap();
        assert_eq!(row.run.unwrap().device, "cpu");
    }

    #[test]
    fn a_loss_that_is_not_a_number_survives_the_file() {
        let row = Row { step: 1, val_loss: Some(f64::NAN), ..Row::default() };
        let line = serde_json::to_string(&row).unwrap();
        assert_eq!(line, "{\"step\":1,\"val_loss\":null}");
        assert_eq!(serde_json::from_str::<Row>(&line).unwrap().val_loss, None);
    }
}
