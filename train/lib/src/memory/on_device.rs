//! Which micro-batch a run on this device gets: by prediction where the memory is known, by trial
//! where it is not.

use ember_host::memory::ASSUMED_BYTES;
use ember_kernels::limits::{Use, check_heads};
use ember_model::{GptConfig, device::Selected};

use super::fit::{Fit, Fitted, Undecided, fit, fit_to_memory};
use super::keeping::keep_where_there_is_room;
use super::prediction::{Kernels, training};
use crate::config::{Precision, TrainConfig};
use crate::error::{ConfigError, Result};
use crate::{config::precision::float_dtype, units::bytes};

/// Gives `config`, whose micro-batch nobody set, one that fits into `memory` bytes, or where nobody
/// can say how much there is, into the device's.
///
/// What is known, the prediction decides. No GPU says reliably how much it can still give, so there
/// anything that is not surely small enough is tried, halving after each failure.
///
/// # Errors
/// When not one window fits, or what `trial` returns.
pub fn fit_to_device(
    config: &TrainConfig,
    shape: &GptConfig,
    open: Undecided,
    selected: &Selected,
    memory: Option<u64>,
    trial: &dyn Fn(&TrainConfig) -> Result<Fit>,
) -> Result<Fitted> {
    let kernels = Kernels::on(&selected.device);
    if let Some(memory) = memory {
        return Ok(fit_to_memory(config, shape, kernels, open, memory)?);
    }
    let mut failure = None;
    let fitted = fit(config, shape, kernels, open, &mut |config, predicted| {
        if predicted <= ASSUMED_BYTES as u64 {
            return Fit::Fits(format!("training needs about {} of memory, which is little", bytes(predicted)));
        }
        trial(config).unwrap_or_else(|error| {
            failure = Some(error);
            Fit::Fits(String::new())
        })
    });
    failure.map_or(Ok(fitted?), Err)
}

/// Has freed memory kept where there is room for it beside what training by `config` needs; returns
/// whether it is.
pub fn keeps_freed_memory(config: &TrainConfig, shape: &GptConfig, selected: &Selected, memory: Option<u64>) -> bool {
    keep_where_there_is_room(training(config, shape, Kernels::on(&selected.device)).peak_bytes, memory)
}

/// Refuses a model whose heads are too wide for the device's kernels.
///
/// # Errors
/// In one line.
pub fn check_attention(precision: Precision, shape: &GptConfig, selected: &Selected) -> Result<(), ConfigError> {
    let used = Use::Training(float_dtype(precision));
    check_heads(shape.head_size, used, &selected.device).map_err(ConfigError::WideHeads)
}

/// Why the micro-batch that somebody set may be too large, where that can be told.
pub fn doubt(config: &TrainConfig, shape: &GptConfig, selected: &Selected, memory: Option<u64>) -> Option<String> {
    let available = memory?;
    let needed = training(config, shape, Kernels::on(&selected.device)).peak_bytes;
    let (micro_batch, needs, has) = (config.micro_batch, bytes(needed), bytes(available));
    (needed > available).then(|| {
        format!("micro_batch = {micro_batch} needs about {needs} of memory, and {has} are available; auto finds one that fits")
    })
}
