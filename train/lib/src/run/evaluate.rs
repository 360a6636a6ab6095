//! The loss on the validation split, with the scoring code of `ember-generate score`: no graph, no
//! dropout.

use ember_data::windows::ValWindows;
use ember_decoding::score::{Surprise, token_log_probabilities, token_surprises};
use ember_model::Gpt;

use super::temperature::Confidence;
use crate::distributed::{ProcessGroup, all_reduce_f64};
use crate::{error::Result, evaluation_batch::rows_at_once};

/// Mean `-ln p` in nats per token over every counted target of `windows`; `None` if `interrupted`
/// returns true. The processes of `group` share the windows, and each gets the mean over all.
///
/// `gpt` is on a device without automatic differentiation.
///
/// # Errors
/// When the tokens cannot be read, or as [`ProcessGroup::all_reduce`].
pub fn evaluate(
    gpt: &Gpt,
    windows: &ValWindows,
    group: &dyn ProcessGroup,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<f64>> {
    let scored = |inputs: &[u32], targets: &[u32], time: usize| token_log_probabilities(gpt, inputs, targets, time);
    let means = means(gpt, windows, group, interrupted, &scored, &|log_p| [-log_p])?;
    Ok(means.map(|[loss]| loss))
}

/// Like [`evaluate`], with the entropy and variance of the model's predictions.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_confidence(
    gpt: &Gpt,
    windows: &ValWindows,
    group: &dyn ProcessGroup,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<Confidence>> {
    let scored = |inputs: &[u32], targets: &[u32], time: usize| token_surprises(gpt, inputs, targets, time);
    let numbers = |Surprise { log_p, entropy, variance }: Surprise| [-log_p, entropy, variance];
    let means = means(gpt, windows, group, interrupted, &scored, &numbers)?;
    Ok(means.map(|[loss, entropy, variance]| Confidence { loss, entropy, variance }))
}

/// Scores rows of inputs and their targets: one result for each target.
type Score<'a, T> = dyn Fn(&[u32], &[u32], usize) -> ember_decoding::Result<Vec<T>> + 'a;

/// The means of `numbers` over every counted target, from the result of `score` for each.
fn means<T: Copy, const N: usize>(
    gpt: &Gpt,
    windows: &ValWindows,
    group: &dyn ProcessGroup,
    interrupted: &dyn Fn() -> bool,
    score: &Score<T>,
    numbers: &dyn Fn(T) -> [f32; N],
) -> Result<Option<[f64; N]>> {
    let time = windows.context_length();
    let rows = rows_at_once(time, gpt.config().vocab_size);
    let (mut totals, mut count, mut stopped) = ([0.0; N], 0u64, false);
    for first in (0..windows.len()).step_by(rows).skip(group.rank()).step_by(group.size()) {
        stopped = interrupted();
        if stopped {
            break;
        }
        let (batch, counted) = windows.batch(first..(first + rows).min(windows.len()))?;
        let scored = score(&batch.inputs, &batch.targets, time)?;
        for (row, counted) in scored.chunks_exact(time).zip(&counted) {
            for (i, total) in totals.iter_mut().enumerate() {
                *total += row[..*counted as usize].iter().map(|at| f64::from(numbers(*at)[i])).sum::<f64>();
            }
            count += u64::from(*counted);
        }
    }
    let [count, stopped] = all_reduce_f64(group, [count as f64, f64::from(u8::from(stopped))])?;
    let totals = all_reduce_f64(group, totals)?;
    Ok((stopped == 0.0).then_some(totals.map(|total| total / count)))
}
