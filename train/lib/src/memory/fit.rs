//! Finds the largest micro-batch whose pass fits into memory: by prediction if the available memory
//! is known, otherwise by trial.
//!
//! Apart from rounding, a step computes the same with every micro-batch; only the memory differs.

use ember_host::memory::ASSUMED_BYTES;
use ember_kernels::limits::{Use, check};
use ember_model::{GptConfig, device::Selected};

use super::keeping::keep_where_there_is_room;
use super::prediction::{Kernels, training, worst};
use crate::config::{Precision, Settings, TrainConfig, precision::float_dtype};
use crate::error::{ConfigError, DoesNotFit, Result};
use crate::{distributed::largest_divisor, units::bytes, units::bytes_beside};

/// A configuration that fits, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The configuration with its micro-batch, and with activation checkpointing if needed.
    pub config: TrainConfig,
    /// The reason in one line.
    pub reason: String,
}

impl Fitted {
    /// The configuration `whole` with the choices made for one process's share of it.
    pub fn in_whole(&self, whole: &TrainConfig) -> TrainConfig {
        let TrainConfig { micro_batch, activation_checkpointing, .. } = self.config;
        TrainConfig { micro_batch, activation_checkpointing, ..whole.clone() }
    }
}

/// The choices that the user left open, and that may be made so that a run fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// Whether the micro-batch may be chosen.
    pub micro_batch: bool,
    /// Whether activation checkpointing may be switched on.
    pub checkpointing: bool,
}

impl Undecided {
    /// The choices that these settings leave open.
    pub fn by(settings: &Settings) -> Self {
        Self { micro_batch: settings.micro_batch.is_none(), checkpointing: settings.activation_checkpointing.is_none() }
    }
}

/// One process's share of each step of `config`, as the configuration of a separate run: its share
/// of the windows, in passes no larger. The windows must divide evenly among `processes`.
pub fn share_of(config: &TrainConfig, processes: usize) -> TrainConfig {
    let windows = config.windows_per_step() / processes;
    let at_most = |most| largest_divisor(windows, most).unwrap_or(1);
    let (batch_size, micro_batch) = (at_most(config.batch_size), at_most(config.micro_batch));
    TrainConfig { batch_size, grad_accum_steps: windows / batch_size, micro_batch, ..config.clone() }
}

/// Finds the largest micro-batch of `config` that `fits` accepts, at most the batch size. On a GPU
/// the widest tensor of a pass must fit into one buffer, too. If not even one window fits, tries
/// again with activation checkpointing. Only changes what is `open`. The reason ends with that of
/// `fits`.
///
/// # Errors
/// When nothing fits; the line says how much memory the smallest pass needs, by part.
pub fn fit(
    config: &TrainConfig,
    shape: &GptConfig,
    kernels: Kernels,
    open: Undecided,
    fits: &mut dyn FnMut(&TrainConfig, u64) -> Fit,
) -> Result<Fitted, DoesNotFit> {
    let (mut smallest, mut why_not) = (config.clone(), String::new());
    let may_switch_on = open.checkpointing && !config.activation_checkpointing;
    let with_checkpointing = may_switch_on.then(|| TrainConfig { activation_checkpointing: true, ..config.clone() });
    let at_once = windows_at_once(config, shape, kernels);
    let mut fits = |config: &TrainConfig| {
        if config.micro_batch > at_once {
            let because = "a layer's output exceeds this GPU's buffer limit".to_owned();
            return Fit::TooLarge { because, next_at_most: at_once };
        }
        fits(config, training(config, shape, kernels).peak_bytes)
    };
    for config in [config].into_iter().chain(&with_checkpointing) {
        let mut most = if open.micro_batch { config.batch_size } else { config.micro_batch };
        while let Some(micro_batch) = largest_divisor(config.windows_per_step(), most) {
            let trial = TrainConfig { micro_batch, ..config.clone() };
            match fits(&trial) {
                Fit::Fits(because) => {
                    let is_switched_on = may_switch_on && trial.activation_checkpointing;
                    let switched = if is_switched_on { ", activation_checkpointing = true" } else { "" };
                    let reason = format!("micro_batch = {micro_batch}{switched}: {because}");
                    return Ok(Fitted { config: trial, reason });
                }
                Fit::TooLarge { because, next_at_most } => {
                    (smallest, why_not) = (trial, because);
                    most = if open.micro_batch { next_at_most.min(micro_batch - 1) } else { 0 };
                }
            }
        }
    }
    let (moment, parts) = worst(&smallest, shape, kernels);
    let peak_bytes = training(&smallest, shape, kernels).peak_bytes;
    Err(DoesNotFit { micro_batch: smallest.micro_batch, why_not, peak_bytes, moment, parts })
}

/// Like [`fit`], by prediction, for `available` bytes. The prediction is accurate to a tenth, so a
/// tenth is left free.
///
/// # Errors
/// As [`fit`].
pub fn fit_to_memory(
    config: &TrainConfig,
    shape: &GptConfig,
    kernels: Kernels,
    open: Undecided,
    available: u64,
) -> Result<Fitted, DoesNotFit> {
    fit(config, shape, kernels, open, &mut |config, predicted| {
        let (needs, has) = (bytes(predicted), bytes(available));
        if predicted + predicted / 10 <= available {
            return Fit::Fits(format!("training needs about {needs} of memory, and {has} are available"));
        }
        let because = format!("{has} are available, of which a tenth is left free");
        Fit::TooLarge { because, next_at_most: config.micro_batch - 1 }
    })
}

/// Whether a configuration fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It fits, for this reason.
    Fits(String),
    /// It does not fit, `because` of this; the next micro-batch to try is at most `next_at_most`.
    #[allow(missing_docs)] // documented above
    TooLarge { because: String, next_at_most: usize },
}

/// Chooses a micro-batch for `config` that fits into `memory` bytes or, if that is unknown, into
/// the device's memory.
///
/// If the memory is known, the prediction decides. No GPU reliably tells its free memory, so there
/// each micro-batch that is not certainly small enough is tried, halved after each failure. `None`
/// if `trial` returned `None`: it was interrupted.
///
/// # Errors
/// When not one window fits, or what `trial` returns.
pub fn fit_to_device(
    config: &TrainConfig,
    shape: &GptConfig,
    open: Undecided,
    selected: &Selected,
    memory: Option<u64>,
    trial: &dyn Fn(&TrainConfig) -> Result<Option<Fit>>,
) -> Result<Option<Fitted>> {
    let kernels = Kernels::on(&selected.device);
    if let Some(memory) = memory {
        return Ok(Some(fit_to_memory(config, shape, kernels, open, memory)?));
    }
    let mut ended = None;
    let fitted = fit(config, shape, kernels, open, &mut |config, predicted| {
        if predicted <= ASSUMED_BYTES as u64 {
            return Fit::Fits(format!("training needs about {} of memory, which is little", bytes(predicted)));
        }
        match trial(config) {
            Ok(Some(fit)) => fit,
            other => {
                ended = Some(other.map(drop));
                Fit::Fits(String::new()) // so that nothing else is tried
            }
        }
    });
    match ended {
        Some(other) => other.map(|()| None),
        None => Ok(Some(fitted?)),
    }
}

/// The most windows in one pass, so that every layer's output fits into one buffer.
fn windows_at_once(config: &TrainConfig, shape: &GptConfig, kernels: Kernels) -> usize {
    match kernels {
        Kernels::Cpu => usize::MAX,
        Kernels::Gpu { most_values, .. } => most_values / (config.context_length * shape.operations().widest().max(1)),
    }
}

/// What a user is told where [`keeps_freed_memory`] is false.
pub const RETURNS_FREED_MEMORY: &str =
    "memory is short: freed memory is returned to the system at once, which slows the steps";

/// Makes the allocator keep freed memory if training by `config` leaves enough room; returns
/// whether it does.
pub fn keeps_freed_memory(config: &TrainConfig, shape: &GptConfig, selected: &Selected, memory: Option<u64>) -> bool {
    keep_where_there_is_room(training(config, shape, Kernels::on(&selected.device)).peak_bytes, memory)
}

/// Checks the model against the device's limits.
///
/// # Errors
/// When it exceeds one, in one line.
pub fn check_limits(precision: Precision, shape: &GptConfig, selected: &Selected) -> Result<(), ConfigError> {
    let used = Use::Training(float_dtype(precision));
    check(shape.demand(used), &selected.device).map_err(ConfigError::Limits)
}

/// A warning if the micro-batch that the user set needs more than the available memory.
pub fn warning(config: &TrainConfig, shape: &GptConfig, selected: &Selected, memory: Option<u64>) -> Option<String> {
    let lack = lack(config, shape, selected, memory)?;
    Some(format!("micro_batch = {} {lack}; auto finds one that fits", config.micro_batch))
}

/// A warning if a run that is resumed needs more than the available memory. Its micro-batch stays:
/// with another one, its numbers would be others.
pub fn warning_at_resume(
    config: &TrainConfig,
    shape: &GptConfig,
    selected: &Selected,
    memory: Option<u64>,
) -> Option<String> {
    let lack = lack(config, shape, selected, memory)?;
    Some(format!("the run {lack}; free some, or resume it on a machine with more"))
}

/// How much memory training by `config` needs, and how much is available, if that is less.
fn lack(config: &TrainConfig, shape: &GptConfig, selected: &Selected, memory: Option<u64>) -> Option<String> {
    let available = memory?;
    let needed = training(config, shape, Kernels::on(&selected.device)).peak_bytes;
    let (needs, has) = (bytes_beside(needed, available), bytes_beside(available, needed));
    (needed > available).then(|| format!("needs about {needs} of memory, and {has} are available"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use ember_model::device::{DeviceChoice, select};

    use super::*;
    use crate::config::{DeviceKind, TextFacts};

    fn config(keys: &str) -> TrainConfig {
        let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size: 65 };
        Settings::from_toml_str(keys).unwrap().resolve(&facts, DeviceKind::Cpu).unwrap().0
    }

    const EVERYTHING: Undecided = Undecided { micro_batch: true, checkpointing: true };

    fn fitted(config: &TrainConfig, available: u64) -> Result<Fitted, DoesNotFit> {
        fit_to_memory(config, &config.shape(65), Kernels::Cpu, EVERYTHING, available)
    }

    #[test]
    fn less_memory_means_smaller_passes_then_checkpointing_then_a_refusal() {
        let config = config("n_layer = 8\nn_embd = 64\ncontext_length = 4096\nbatch_size = 12\ngrad_accum_steps = 2");
        let peak = |micro_batch, activation_checkpointing| {
            let config = TrainConfig { micro_batch, activation_checkpointing, ..config.clone() };
            training(&config, &config.shape(65), Kernels::Cpu).peak_bytes
        };
        // The whole batch if it fits; the micro-batch never exceeds batch_size.
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
    fn the_widest_tensor_fits_into_a_buffer_however_much_memory_there_is() {
        let config = config("n_layer = 2\nn_embd = 64\ncontext_length = 128\nbatch_size = 12");
        let shape = config.shape(65);
        let window = 128 * shape.operations().widest();
        for (most_values, micro_batch) in [(12 * window, 12), (12 * window - 1, 6), (window, 1)] {
            let kernels = Kernels::Gpu { most_logits: 1 << 28, most_values };
            let fitted = fit_to_memory(&config, &shape, kernels, EVERYTHING, 1 << 40).unwrap();
            assert_eq!(fitted.config.micro_batch, micro_batch);
        }
    }

    /// An evaluation takes many windows at once, here each with a very wide MLP.
    #[test]
    fn the_line_says_when_so_much_is_needed_and_what_for() {
        let line = |keys: &str| fitted(&config(keys), 1000).unwrap_err();
        let shape = "n_layer = 1\nn_embd = 64\ncontext_length = 16\nbatch_size = 2\n";
        let evaluated = line(&format!("{shape}n_inner = 65536"));
        assert!(evaluated.to_string().contains(" in an evaluation (weights "), "{evaluated}");
        assert_eq!(evaluated.parts.iter().map(|(_, size)| size).sum::<u64>(), evaluated.peak_bytes);
        let stepped = line("n_layer = 2\nn_embd = 512\ncontext_length = 8192\nbatch_size = 2");
        assert!(stepped.to_string().contains(" in a step (weights "), "{stepped}");
    }

    #[test]
    fn what_somebody_decided_stays() {
        let config = config("n_layer = 8\nn_embd = 64\ncontext_length = 128\nbatch_size = 4");
        let refuse = &mut |_: &TrainConfig, _| Fit::TooLarge { because: "no".into(), next_at_most: usize::MAX };
        let mut trials = 0;
        let mut count = |config: &TrainConfig, predicted| {
            trials += 1;
            refuse(config, predicted)
        };
        let shape = config.shape(65);
        assert!(
            fit(&config, &shape, Kernels::Cpu, Undecided { micro_batch: true, checkpointing: false }, &mut count)
                .is_err()
        );
        assert_eq!(trials, 3);
        // An explicit micro-batch is the only one tried, and the line names it.
        let decided = Undecided { micro_batch: false, checkpointing: false };
        let config = TrainConfig { micro_batch: 2, ..config };
        let refused = fit(&config, &shape, Kernels::Cpu, decided, refuse).unwrap_err().to_string();
        assert!(refused.contains("with micro_batch = 2 it needs"), "{refused}");
    }

    #[test]
    fn a_trial_that_was_interrupted_is_the_last_and_nothing_is_chosen() {
        let config = config("n_layer = 24\nn_embd = 2048\ncontext_length = 4096\nbatch_size = 8");
        let selected = select(DeviceChoice::Cpu).unwrap();
        let trials = Cell::new(0);
        let interrupted = |_: &TrainConfig| -> Result<Option<Fit>> {
            trials.set(trials.get() + 1);
            Ok(None)
        };
        let fitted = fit_to_device(&config, &config.shape(65), EVERYTHING, &selected, None, &interrupted).unwrap();
        assert_eq!((fitted, trials.get()), (None, 1));
    }

    #[test]
    fn a_share_has_its_part_of_the_windows_and_whole_is_all_of_them() {
        let config = config("n_layer = 2\nn_embd = 64\ncontext_length = 128\nbatch_size = 6\ngrad_accum_steps = 2");
        assert_eq!(share_of(&config, 1), config);
        let sizes = |share: &TrainConfig| (share.batch_size, share.grad_accum_steps, share.micro_batch);
        // The share of 12 windows for 2, 3, 4 and 12 processes: 6, 4, 3 and 1.
        let shares = [2, 3, 4, 12].map(|processes| share_of(&config, processes));
        assert_eq!(shares.each_ref().map(sizes), [(6, 1, 6), (4, 1, 4), (3, 1, 3), (1, 1, 1)]);
        let four = &mut |config: &TrainConfig, _| match config.micro_batch {
            ..=4 => Fit::Fits(String::new()),
            _ => Fit::TooLarge { because: String::new(), next_at_most: 4 },
        };
        let fitted = fit(&shares[0], &config.shape(65), Kernels::Cpu, EVERYTHING, four).unwrap();
        assert_eq!(fitted.config.micro_batch, 3, "divides the share of 6, where 4 does not");
        let whole = fitted.in_whole(&config);
        assert_eq!((whole.micro_batch, whole.windows_per_step()), (3, 12));
    }
}
