//! What the matrix products of a run are computed in: what each device can do, and what it is best
//! at.

use burn::tensor::FloatDType;
use ember_kernels::{is_cpu, multiplies_bf16};
use ember_model::device::{Selected, multiplies};

use super::keys::{Precision, Settings};
use crate::{error::ConfigError, note::Note};

/// burn's name for it.
pub fn float_dtype(precision: Precision) -> FloatDType {
    match precision {
        Precision::F32 => FloatDType::F32,
        Precision::Bf16 => FloatDType::BF16,
        Precision::F16 => FloatDType::F16,
    }
}

/// Gives the settings a precision where nobody named one, and returns the reason for it; checks the
/// one that somebody named.
///
/// bfloat16 where the device multiplies it: that is what graphics cards made for training and newer
/// processors are fastest at, it needs no scaling, and a model learns as much a step
/// (`docs/measured.md`). float16 is never chosen, since it needs scaling.
///
/// # Errors
/// When the device cannot do what was asked for.
pub fn settle(settings: &mut Settings, selected: &Selected) -> Result<Option<Note>, ConfigError> {
    if let Some(precision) = settings.precision {
        check(precision, selected)?;
        return Ok(None);
    }
    let (precision, note) = automatic(selected);
    settings.precision = Some(precision);
    Ok(Some(note))
}

fn automatic(selected: &Selected) -> (Precision, Note) {
    let chosen =
        |precision: Precision, reason: &str| (precision, format!("precision = {}: {reason}", precision.name()).into());
    let Selected { device, id, .. } = selected;
    match multiplies(device, FloatDType::BF16) {
        _ if is_cpu(device) && !multiplies_bf16() => {
            chosen(Precision::F32, "on this CPU the half types save memory, not time")
        }
        Ok(()) if is_cpu(device) => {
            chosen(Precision::Bf16, "this processor multiplies bfloat16, in two thirds of float32's time")
        }
        Ok(()) => chosen(Precision::Bf16, &format!("{id} multiplies bfloat16, at half the memory")),
        Err(problem) => chosen(Precision::F32, &format!("{id} {problem}")),
    }
}

/// Refuses a precision that the device cannot do.
///
/// # Errors
/// As said, in one line.
pub fn check(precision: Precision, selected: &Selected) -> Result<(), ConfigError> {
    multiplies(&selected.device, float_dtype(precision)).map_err(|problem| ConfigError::Precision {
        precision: precision.name().to_owned(),
        device: selected.id.clone(),
        name: selected.name.clone(),
        problem: problem.to_string(),
    })
}
