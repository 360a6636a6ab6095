//! How much of the held-out text is scored at once.

/// Tokens scored in one forward pass at most: enough to keep any device busy.
const TOKENS_AT_ONCE: usize = 8192;
/// Logits of one forward pass at most (128 MiB of float32).
const LOGITS_AT_ONCE: usize = 32 << 20;

/// Windows that are scored in one forward pass.
pub fn rows_at_once(context_length: usize, vocab_size: usize) -> usize {
    let tokens = TOKENS_AT_ONCE.min(LOGITS_AT_ONCE / vocab_size);
    (tokens / context_length).max(1)
}
