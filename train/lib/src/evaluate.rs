//! The loss on text that was not trained on, by the same scoring that `ember-generate score` uses: no graph, no dropout.

use ember_data::windows::ValWindows;
use ember_decoding::score::token_log_probabilities;
use ember_model::Gpt;

use crate::error::Result;
use crate::team::Team;
use crate::team::messages::sum_f64;

/// Tokens scored in one forward pass at most: enough to keep any device busy.
const TOKENS_AT_ONCE: usize = 8192;
/// Logits of one forward pass at most (128 MiB of float32).
const LOGITS_AT_ONCE: usize = 32 << 20;

/// Mean `-ln p` in nats per token over every counted target of `windows`; `None` when `interrupted` says to stop. The processes
/// of `team` share the windows, and all of them get the mean.
///
/// `gpt` is on a device without automatic differentiation.
///
/// # Errors
/// When the tokens cannot be read, or as [`Team::sum`].
pub fn evaluate(
    gpt: &Gpt,
    windows: &ValWindows,
    team: &dyn Team,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<f64>> {
    let rows = rows_at_once(windows.context_length(), gpt.config().vocab_size);
    let (mut total, mut count, mut stopped) = (0.0, 0u64, false);
    for first in (0..windows.len()).step_by(rows).skip(team.rank()).step_by(team.size()) {
        stopped = interrupted();
        if stopped {
            break;
        }
        let batch = windows.batch(first..(first + rows).min(windows.len()))?;
        let time = batch.context_length;
        let log_p = token_log_probabilities(gpt, &batch.inputs, &batch.targets, time)?;
        for (row, counted) in log_p.chunks_exact(time).zip(&batch.counted) {
            total -= row[..*counted as usize].iter().map(|log_p| f64::from(*log_p)).sum::<f64>();
            count += u64::from(*counted);
        }
    }
    let [total, count, stopped] = sum_f64(team, [total, count as f64, f64::from(u8::from(stopped))])?;
    Ok((stopped == 0.0).then_some(total / count))
}

/// Windows that are scored in one forward pass.
pub fn rows_at_once(context_length: usize, vocab_size: usize) -> usize {
    let tokens = TOKENS_AT_ONCE.min(LOGITS_AT_ONCE / vocab_size);
    (tokens / context_length).max(1)
}
