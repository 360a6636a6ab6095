//! Errors of devices and models.

use std::error::Error;

use ember_kernels::limits::LimitError;
use ember_model::device::{DeviceError, count_in_words};
use ember_model::{Error as ModelError, WeightType};

/// The program's line, if flags would help.
pub fn line(cause: &(dyn Error + 'static)) -> Option<String> {
    match (cause.downcast_ref(), cause.downcast_ref()) {
        (Some(error), _) => device(error),
        (_, Some(error @ ModelError::Weights { weights: WeightType::Bf16, .. })) => {
            Some(format!("{error}; use --weights f32, or another --device"))
        }
        (_, Some(ModelError::Weights { .. })) => {
            Some("int8 weights work only on the CPU; use --weights bf16 or f32, or --device cpu".to_owned())
        }
        (_, Some(ModelError::Limits(error))) => Some(limits(error)),
        _ => None,
    }
}

/// The line for a model that exceeds a GPU's limits.
pub fn limits(error: &LimitError) -> String {
    let way_out = match error {
        LimitError::HeadsTooWide { has_head_dim: false, .. } => "choose a larger n_head, or --device cpu",
        LimitError::TooLarge { .. } => "choose a smaller vocabulary or n_embd, or --device cpu",
        _ => "use --device cpu",
    };
    format!("{error}; {way_out}")
}

fn device(error: &DeviceError) -> Option<String> {
    let line = match error {
        DeviceError::NotBuilt { choice, kind } => format!(
            "--device {choice}: this program was built without {kind}; build it with --features {}",
            kind.to_lowercase()
        ),
        DeviceError::Absent { choice, count } => format!(
            "--device {choice}: no such device ({}); `devices` lists what there is, --device cpu always works",
            count_in_words(*count)
        ),
        DeviceError::Failed { choice, name, problem } => {
            format!("--device {choice} ({name}) {problem}; try --device cpu")
        }
        _ => return None,
    };
    Some(line)
}
