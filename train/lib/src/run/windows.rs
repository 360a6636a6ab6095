//! The windows that a run's configuration cuts its text into.

use ember_data::prepare::Dataset;
use ember_data::windows::{TrainWindows, ValWindows};

use crate::config::TrainConfig;
use crate::error::Result;

/// The windows of both splits.
///
/// # Errors
/// When a split is too short for one window: the line says which `context_length` would fit.
pub fn windows(config: &TrainConfig, dataset: &Dataset) -> Result<(TrainWindows, ValWindows)> {
    let rule = dataset.manifest.window_rule;
    let end_of_text = dataset.manifest.end_of_text;
    let context = config.context_length;
    let train = TrainWindows::new(&dataset.train, context, config.seed, rule, end_of_text)?;
    let val = ValWindows::new(&dataset.val, context, rule, end_of_text)?;
    let most = config.eval_tokens.div_ceil(context as u64) as usize;
    Ok((train, if most == 0 { val } else { val.evenly_spaced(most) }))
}
