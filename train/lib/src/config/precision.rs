//! The precision of a run's matrix products: which types a device supports, and which is best on
//! it.

use burn::tensor::{Device, FloatDType};
use ember_kernels::simd::{Level, VARIABLE, level};
use ember_kernels::{is_cpu, multiplies_bf16};
use ember_model::device::{Selected, multiplies};

use super::keys::{Precision, Settings};
use crate::{error::ConfigError, note::Note};

/// burn's type for a precision.
pub fn float_dtype(precision: Precision) -> FloatDType {
    match precision {
        Precision::F32 => FloatDType::F32,
        Precision::Bf16 => FloatDType::BF16,
        Precision::F16 => FloatDType::F16,
    }
}

/// Chooses a precision if the user set none, and returns the reason; otherwise checks the user's.
///
/// bfloat16 if the device multiplies it: GPUs made for training and newer processors are fastest at
/// it, it needs no loss scaling, and a model learns as much per step (`docs/measured.md`). float16
/// is never chosen, since it needs loss scaling.
///
/// # Errors
/// When the device does not support the precision that the user set.
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
            chosen(Precision::F32, "on this CPU half precision saves memory, not time")
        }
        Ok(()) if is_cpu(device) => {
            chosen(Precision::Bf16, "this CPU multiplies bfloat16 in two thirds of float32's time")
        }
        Ok(()) => chosen(Precision::Bf16, &format!("{id} multiplies bfloat16, at half the memory")),
        Err(problem) => chosen(Precision::F32, &format!("{id} {problem}")),
    }
}

/// The instruction set of the kernels if `device` is the processor: the last bits of results depend
/// on it. With `_bf16` at its end, products in bfloat16 use instructions of their own.
pub fn simd(device: &Device) -> Option<&'static str> {
    let set = if multiplies_bf16() { "avx512_bf16" } else { level().arithmetic() };
    is_cpu(device).then_some(set)
}

/// The environment's setting with which a processor that has the instruction set `now` uses the set
/// `before`, both as [`simd`] names them; `None` if there is none.
pub fn simd_setting(before: &str, now: &str) -> Option<String> {
    let levels = [Level::Portable, Level::Avx2, Level::Avx512];
    // Not the portable set of a machine that rounds otherwise: it has another name.
    let find = |set: &str| levels.into_iter().find(|level| level.arithmetic() == set);
    // No setting leaves out the instructions for bfloat16 alone.
    let (before, now) = (find(before)?, find(now.trim_end_matches("_bf16"))?);
    (before < now).then(|| format!("{VARIABLE}={}", before.name()))
}

/// Checks that the device supports a precision.
///
/// # Errors
/// When it does not, in one line.
pub fn check(precision: Precision, selected: &Selected) -> Result<(), ConfigError> {
    multiplies(&selected.device, float_dtype(precision)).map_err(|problem| ConfigError::Precision {
        precision: precision.name().to_owned(),
        device: selected.id.clone(),
        name: selected.name.clone(),
        problem: problem.to_string(),
    })
}
