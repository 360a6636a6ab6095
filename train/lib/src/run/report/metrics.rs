//! A row of `metrics.jsonl`, the log of a run's numbers; `docs/metrics.md` has every key with its
//! unit.

use serde::{Deserialize, Serialize};

/// Defines a row with these keys, each written only if it applies.
macro_rules! row {
    ($($(#[$meaning:meta])* $key:ident: $type:ty,)*) => {
        /// One line, with the keys that apply. Losses are in nats per token. A number that is not
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
    /// Mean training loss since the previous row.
    train_loss: f64,
    /// Loss on the validation split.
    val_loss: f64,
    /// The same in bits per byte of the text, which is comparable across tokenizers.
    bits_per_byte: f64,
    /// The model's entropy on the validation split: the loss that it expects.
    entropy: f64,
    /// The temperature that divides its logits.
    temperature: f64,
    /// Validation loss of the averaged weights.
    ema_val_loss: f64,
    /// The built-in stories' entropy on the validation split: no model's loss can be lower.
    entropy_floor: f64,
    /// Validation loss of the best predictor that forgets earlier sentences.
    forgetful_loss: f64,
    /// Validation loss of the best n-gram model of the text.
    ngram_loss: f64,
    /// The learning rate of this step.
    learning_rate: f64,
    /// Global norm of the gradient before clipping.
    grad_norm: f64,
    /// Target tokens trained on so far.
    tokens: u64,
    /// Training speed since the previous row.
    tokens_per_s: f64,
    /// Model FLOP utilisation, from 0 to 1.
    mfu: f64,
    /// Memory in use on the device.
    memory_bytes: u64,
    /// Time since the run began, earlier sessions included.
    elapsed_s: f64,
    /// Batches skipped so far, including this one; only in the row of a skipped batch.
    skipped: u64,
    /// A spike's norm divided by the usual norm. Its batch was skipped if `skipped` is present,
    /// else its gradient was scaled down.
    spike: f64,
    /// The first window of the batch that was skipped or was a spike.
    window: u64,
    /// Whether the gradient of this step was scaled down to `grad_clip`.
    clipped: bool,
    /// Duration of this evaluation.
    eval_s: f64,
    /// Time spent saving since the previous row of a training step.
    save_s: f64,
    /// Time spent sampling text since the previous row of a training step.
    sample_s: f64,
    /// Facts about the run; only in the first row.
    run: RunFacts,
    /// The new length in steps, when a time budget changed it.
    max_steps: u64,
}

/// The last step taken according to these rows.
pub fn last_step(rows: &[Row]) -> Option<u64> {
    // The row of a skipped batch has the number of a step that was not taken with it.
    rows.iter().filter(|row| row.skipped.is_none()).map(|row| row.step).max()
}

/// Facts about the run for readers of the log. The configuration is in `config.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    /// Version of the program that began the run.
    pub version: String,
    /// The device that it began on.
    pub device: String,
    /// The instruction set of the kernels, if that device is the processor. Logs of older versions
    /// do not have it.
    pub simd: Option<String>,
    /// Number of parameters of the model.
    pub parameters: u64,
    /// Size of the vocabulary.
    pub vocab_size: u64,
    /// Target tokens of an optimizer step.
    pub tokens_per_step: u64,
    /// Optimizer steps of the whole run.
    pub max_steps: u64,
    /// Tokens in the training split.
    pub train_tokens: u64,
    /// Tokens in the validation split.
    pub val_tokens: u64,
    /// The device's peak floating-point operations per second, the reference of `mfu`, if known.
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

    /// Rows of older and newer versions can be read: unknown keys are ignored.
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
