//! Which micro-batch a run on this device gets: by prediction where the memory is known, by trial where it is not.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use ember_cli::wording::heads;
use ember_host::memory::ASSUMED_BYTES;
use ember_model::GptConfig;
use ember_model::device::Selected;
use ember_model::kernels::gpu::limits::{Use, check_heads};

use ember_training::config::{ConfigError, Precision, TrainConfig};
use ember_training::memory::fit::{Fitted, Open, Verdict, by_prediction, fit};
use ember_training::memory::keeping::keep_where_there_is_room;
use ember_training::memory::prediction::{Kernels, training};
use ember_training::precision::float_dtype;
use ember_training::report::units::bytes;

/// Gives `config`, whose micro-batch nobody set, one that fits into `memory` bytes, or where nobody can say how much there is, into
/// the device's.
///
/// What is known, the prediction decides. No GPU says reliably how much it can still give, so there anything that is not surely small
/// enough is tried, two steps in a process of its own, halving after each failure.
///
/// # Errors
/// When not one window fits.
pub fn fit_to_device(
    config: &TrainConfig,
    shape: &GptConfig,
    open: Open,
    selected: &Selected,
    memory: Option<u64>,
) -> Result<Fitted> {
    let mut failure = None;
    let fitted = fit(config, shape, Kernels::of(&selected.device), open, &mut |config, predicted| match memory {
        Some(available) => by_prediction(config, predicted, available),
        None if predicted <= ASSUMED_BYTES as u64 => {
            Verdict::Fits(format!("training needs about {} of memory, which is little", bytes(predicted)))
        }
        None => trial(config, shape, selected).unwrap_or_else(|error| {
            failure = Some(error);
            Verdict::Fits(String::new())
        }),
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(fitted?),
    }
}

/// Gives `config` a micro-batch that fits into `memory` bytes, by prediction.
///
/// # Errors
/// When not one window fits.
pub fn fit_to_memory(
    config: &TrainConfig,
    shape: &GptConfig,
    open: Open,
    selected: &Selected,
    memory: u64,
) -> Result<Fitted, ConfigError> {
    let kernels = Kernels::of(&selected.device);
    fit(config, shape, kernels, open, &mut |config, predicted| by_prediction(config, predicted, memory))
}

/// Has freed memory kept where there is room for it beside what training by `config` needs; returns whether it is.
pub fn keeps_freed_memory(config: &TrainConfig, shape: &GptConfig, selected: &Selected, memory: Option<u64>) -> bool {
    keep_where_there_is_room(training(config, shape, Kernels::of(&selected.device)).peak_bytes, memory)
}

/// Refuses a model whose heads are too wide for the device's kernels.
///
/// # Errors
/// A [`ConfigError`] of one line.
pub fn check_attention(precision: Precision, shape: &GptConfig, selected: &Selected) -> Result<(), ConfigError> {
    let used = Use::Training(float_dtype(precision));
    check_heads(shape.head_size, used, &selected.device).map_err(|error| ConfigError(heads(&error)))
}

/// Why the micro-batch that somebody set may be too large, where that can be told.
pub fn doubt(config: &TrainConfig, shape: &GptConfig, selected: &Selected, memory: Option<u64>) -> Option<String> {
    let available = memory?;
    let needed = training(config, shape, Kernels::of(&selected.device)).peak_bytes;
    let (micro_batch, needs, has) = (config.micro_batch, bytes(needed), bytes(available));
    (needed > available).then(|| {
        format!("micro_batch = {micro_batch} needs about {needs} of memory, and {has} are available; auto finds one that fits")
    })
}

/// Lets another process take two steps of `config` on random tokens.
fn trial(config: &TrainConfig, shape: &GptConfig, selected: &Selected) -> Result<Verdict> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder; set micro_batch yourself")?;
    let [config_path, shape_path] = ["trial.toml", "shape.json"].map(|name| folder.path().join(name));
    for (path, text) in [(&config_path, config.to_toml()?), (&shape_path, serde_json::to_string(shape)?)] {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let program = std::env::current_exe().context("cannot find this program's own file; set micro_batch yourself")?;
    let ran = Command::new(program)
        .arg("first-steps")
        .args([&config_path, &shape_path])
        .args(["--device", &selected.id, "--quiet"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start a trial step; set micro_batch yourself")?;
    if ran.status.success() {
        return Ok(Verdict::Fits(format!("steps of it were tried on {}", selected.id)));
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let said = said.lines().last().unwrap_or("it was killed").trim_start_matches("error: ").to_owned();
    Ok(Verdict::TooLarge {
        because: format!("a step on {} failed ({said})", selected.id),
        next_at_most: config.micro_batch / 2,
    })
}
