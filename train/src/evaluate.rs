//! The loss on text that was not trained on, by the same scoring that `ember-generate score` uses: no graph, no dropout.

use anyhow::Result;
use ember_data::windows::ValWindows;
use ember_generate::score::token_log_probabilities;
use ember_model::Gpt;

/// Tokens scored in one forward pass at most: enough to keep any device busy.
const TOKENS_AT_ONCE: usize = 8192;
/// Logits of one forward pass at most (128 MiB of float32).
const LOGITS_AT_ONCE: usize = 32 << 20;

/// Mean `-ln p` in nats per token over every counted target of `windows`; `None` when `interrupted` says to stop.
///
/// `gpt` is on a device without automatic differentiation.
pub fn evaluate(gpt: &Gpt, windows: &ValWindows, interrupted: &dyn Fn() -> bool) -> Result<Option<f64>> {
    let rows = rows_at_once(windows.context_length(), gpt.config().vocab_size);
    let (mut total, mut count) = (0.0, 0u64);
    for first in (0..windows.len()).step_by(rows) {
        if interrupted() {
            return Ok(None);
        }
        let batch = windows.batch(first..(first + rows).min(windows.len()));
        let time = batch.context_length;
        let log_p = token_log_probabilities(gpt, &batch.inputs, &batch.targets, time)?;
        for (row, counted) in log_p.chunks_exact(time).zip(&batch.counted) {
            total -= row[..*counted as usize].iter().map(|log_p| f64::from(*log_p)).sum::<f64>();
            count += u64::from(*counted);
        }
    }
    Ok(Some(total / count as f64))
}

/// Windows that are scored in one forward pass.
pub fn rows_at_once(context_length: usize, vocab_size: usize) -> usize {
    let tokens = TOKENS_AT_ONCE.min(LOGITS_AT_ONCE / vocab_size);
    (tokens / context_length).max(1)
}
