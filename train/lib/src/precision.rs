//! What the matrix products of a run are computed in: what each device can do, and what it is best at.

use anyhow::Result;
use burn::tensor::FloatDType;
use ember_cli::program::UsageError;
use ember_model::device::{Selected, multiplies};
use ember_model::kernels::{is_cpu, multiplies_bf16};

use crate::config::{Precision, Settings};

/// burn's name for it.
pub fn float_dtype(precision: Precision) -> FloatDType {
    match precision {
        Precision::F32 => FloatDType::F32,
        Precision::Bf16 => FloatDType::BF16,
        Precision::F16 => FloatDType::F16,
    }
}

/// Gives the settings a precision where nobody named one, and returns the reason for it; checks the one that somebody named.
///
/// bfloat16 where the device multiplies it: that is what graphics cards made for training are fastest at, and it needs no scaling.
/// float16 is never chosen, since it does.
///
/// # Errors
/// A [`UsageError`] when the device cannot do what was asked for.
pub fn settle(settings: &mut Settings, selected: &Selected) -> Result<Option<String>> {
    if let Some(precision) = settings.precision() {
        check(precision, selected)?;
        return Ok(None);
    }
    let (precision, reason) = automatic(selected);
    let precision = word(precision);
    settings.set(&format!("precision={precision}"))?;
    Ok(Some(format!("precision = {precision}: {reason}")))
}

/// What a configuration calls it.
fn word(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
        Precision::F16 => "f16",
    }
}

fn automatic(selected: &Selected) -> (Precision, String) {
    if is_cpu(&selected.device) {
        let reason = if multiplies_bf16() {
            "exact; this processor multiplies bfloat16 as well, at less time and memory, with --set precision=bf16"
        } else {
            "on this CPU the half types save memory, not time"
        };
        return (Precision::F32, reason.to_owned());
    }
    match multiplies(&selected.device, FloatDType::BF16) {
        Ok(()) => (Precision::Bf16, format!("{} multiplies bfloat16, at half the memory", selected.id)),
        Err(problem) => (Precision::F32, format!("in bfloat16 {} {problem}", selected.id)),
    }
}

/// Refuses a precision that the device cannot do.
///
/// # Errors
/// A [`UsageError`] whose line says why.
pub fn check(precision: Precision, selected: &Selected) -> Result<()> {
    multiplies(&selected.device, float_dtype(precision)).map_err(|problem| {
        let line = format!(
            "precision = {}: {} ({}) {problem}; use --set precision=f32, or another --device",
            word(precision),
            selected.id,
            selected.name
        );
        UsageError::new(line).into()
    })
}
