//! Finding the micro-batch that fits: the largest share of a step's windows whose pass the memory at hand can hold.
//!
//! What a step computes is the same for every micro-batch, but for rounding; only how much of it is there at once differs.

use ember_model::GptConfig;

use super::prediction::{Kernels, Parts, training};
use crate::config::{ConfigError, TrainConfig};
use crate::report::units::bytes;

/// What a run was given so that it fits, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The configuration, with its micro-batch and perhaps activation checkpointing.
    pub config: TrainConfig,
    /// One line for people.
    pub reason: String,
}

/// Whether activation checkpointing may be switched on to make a run fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpointing {
    /// Nobody decided: it may.
    Open,
    /// Somebody did.
    Decided,
}

/// The largest micro-batch of `config` for which `fits` says yes, at most its batch size; where even one window does not fit, the
/// same again with activation checkpointing. The reason ends in what `fits` says.
///
/// # Errors
/// When nothing fits: the line says how much the smallest needs, by part.
pub fn fit(
    config: &TrainConfig,
    shape: &GptConfig,
    kernels: Kernels,
    checkpointing: Checkpointing,
    fits: &mut dyn FnMut(&TrainConfig, u64) -> Verdict,
) -> Result<Fitted, ConfigError> {
    let mut smallest = Parts::default();
    let mut why_not = String::new();
    for activation_checkpointing in [config.activation_checkpointing, true] {
        if activation_checkpointing != config.activation_checkpointing && checkpointing == Checkpointing::Decided {
            break;
        }
        let mut most = config.batch_size;
        while let Some(micro_batch) = largest_divisor(config.windows_per_step(), most) {
            let trial = TrainConfig { micro_batch, activation_checkpointing, ..config.clone() };
            smallest = training(&trial, shape, kernels);
            match fits(&trial, smallest.peak_bytes) {
                Verdict::Fits(because) => {
                    let switched = if activation_checkpointing == config.activation_checkpointing {
                        ""
                    } else {
                        ", activation_checkpointing = true"
                    };
                    return Ok(Fitted {
                        config: trial,
                        reason: format!("micro_batch = {micro_batch}{switched}: {because}"),
                    });
                }
                Verdict::TooLarge { because, next_at_most } => {
                    (why_not, most) = (because, next_at_most.min(micro_batch - 1))
                }
            }
        }
        if config.activation_checkpointing {
            break;
        }
    }
    Err(refusal(&smallest, &why_not))
}

/// Whether a configuration fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does, for this reason.
    Fits(String),
    /// It does not, for this reason; the next to try has at most so many windows in a pass.
    TooLarge {
        /// One clause.
        because: String,
        /// Windows.
        next_at_most: usize,
    },
}

/// By prediction, whether so much is `available`. The prediction is right to a tenth, so a tenth is left free.
pub fn by_prediction(config: &TrainConfig, predicted_bytes: u64, available: u64) -> Verdict {
    let (needs, has) = (bytes(predicted_bytes), bytes(available));
    if predicted_bytes + predicted_bytes / 10 <= available {
        return Verdict::Fits(format!("training needs about {needs} of memory, and {has} are available"));
    }
    Verdict::TooLarge { because: format!("{has} are available"), next_at_most: config.micro_batch - 1 }
}

/// The largest divisor of `number` that is at most `most`; `None` at 0.
fn largest_divisor(number: usize, most: usize) -> Option<usize> {
    (1..=most.min(number)).rev().find(|divisor| number.is_multiple_of(*divisor))
}

fn refusal(smallest: &Parts, why_not: &str) -> ConfigError {
    let Parts { weights_bytes, gradients_bytes, moments_bytes, activations_bytes, logits_bytes, peak_bytes, .. } =
        *smallest;
    ConfigError(format!(
        "training does not fit into memory: one window at a time needs about {} (weights {}, gradients {}, moments {}, \
         activations {}, logits {}), and {why_not}; make n_layer, n_embd, context_length or the vocabulary smaller",
        bytes(peak_bytes),
        bytes(weights_bytes),
        bytes(gradients_bytes),
        bytes(moments_bytes),
        bytes(activations_bytes),
        bytes(logits_bytes),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{DeviceKind, Settings, TextFacts};

    fn config(keys: &str) -> TrainConfig {
        let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size: 65 };
        Settings::from_toml_str(keys).unwrap().resolve(&facts, DeviceKind::Cpu).unwrap().0
    }

    fn fitted(config: &TrainConfig, available: u64) -> Result<Fitted, ConfigError> {
        fit(config, &config.shape(65), Kernels::Fused, Checkpointing::Open, &mut |config, predicted| {
            by_prediction(config, predicted, available)
        })
    }

    #[test]
    fn less_memory_means_smaller_passes_then_checkpointing_then_a_refusal() {
        let config = config("n_layer = 8\nn_embd = 64\ncontext_length = 4096\nbatch_size = 12\ngrad_accum_steps = 2");
        let peak = |micro_batch, activation_checkpointing| {
            let config = TrainConfig { micro_batch, activation_checkpointing, ..config.clone() };
            training(&config, &config.shape(65), Kernels::Fused).peak_bytes
        };
        // The batch as it is, where it fits; never more of the step at once than was asked for.
        let whole = fitted(&config, 1 << 40).unwrap();
        assert_eq!((whole.config.micro_batch, whole.config.activation_checkpointing), (12, false));
        for micro_batch in [8, 6, 4, 3, 2, 1] {
            let found = fitted(&config, peak(micro_batch, false) * 11 / 10 + 1).unwrap();
            assert_eq!((found.config.micro_batch, found.config.activation_checkpointing), (micro_batch, false));
            assert_eq!(found.config.tokens_per_step(), config.tokens_per_step());
            assert!(found.config.validate().is_ok());
        }
        let found = fitted(&config, peak(1, false) * 11 / 10 - 1000).unwrap();
        assert!(found.config.activation_checkpointing && found.reason.contains("activation_checkpointing = true"));
        let refused = fitted(&config, peak(1, true) / 2).unwrap_err().to_string();
        assert!(
            refused.contains("weights") && refused.contains("make n_layer") && !refused.contains('\n'),
            "{refused}"
        );
    }

    #[test]
    fn what_somebody_decided_stays() {
        let config = config("n_layer = 8\nn_embd = 64\ncontext_length = 128\nbatch_size = 4");
        let refuse = &mut |_: &TrainConfig, _| Verdict::TooLarge { because: "no".into(), next_at_most: usize::MAX };
        let mut trials = 0;
        let mut count = |config: &TrainConfig, predicted| {
            trials += 1;
            refuse(config, predicted)
        };
        let shape = config.shape(65);
        assert!(fit(&config, &shape, Kernels::Fused, Checkpointing::Decided, &mut count).is_err());
        assert_eq!(trials, 3);
    }
}
