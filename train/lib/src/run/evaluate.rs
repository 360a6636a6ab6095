//! The loss on text that was not trained on, by the same scoring that `ember-generate score` uses:
//! no graph, no dropout.

use ember_data::windows::ValWindows;
use ember_decoding::score::token_log_probabilities;
use ember_model::Gpt;

use crate::distributed::{ProcessGroup, all_reduce_f64};
use crate::{error::Result, memory::prediction::rows_at_once};

/// Mean `-ln p` in nats per token over every counted target of `windows`; `None` when `interrupted`
/// says to stop. The processes of `group` share the windows, and all of them get the mean.
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
    let time = windows.context_length();
    let rows = rows_at_once(time, gpt.config().vocab_size);
    let (mut total, mut count, mut stopped) = (0.0, 0u64, false);
    for first in (0..windows.len()).step_by(rows).skip(group.rank()).step_by(group.size()) {
        stopped = interrupted();
        if stopped {
            break;
        }
        let (batch, counted) = windows.batch(first..(first + rows).min(windows.len()))?;
        let log_p = token_log_probabilities(gpt, &batch.inputs, &batch.targets, time)?;
        for (row, counted) in log_p.chunks_exact(time).zip(&counted) {
            total -= row[..*counted as usize].iter().map(|log_p| f64::from(*log_p)).sum::<f64>();
            count += u64::from(*counted);
        }
    }
    let [total, count, stopped] = all_reduce_f64(group, [total, count as f64, f64::from(u8::from(stopped))])?;
    Ok((stopped == 0.0).then_some(total / count))
}
