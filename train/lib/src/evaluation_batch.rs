//! How much an evaluation scores at once: the loop does it, and the prediction of memory counts it.

/// Tokens of a batch at most: enough to keep any device busy.
const TOKENS_OF_A_BATCH: usize = 8192;
/// Logits at all of its positions together, at most.
const LOGITS_OF_A_BATCH: usize = 32 << 20;

/// Windows that go through the model in one forward pass.
pub fn rows_at_once(context_length: usize, vocab_size: usize) -> usize {
    let tokens = TOKENS_OF_A_BATCH.min(LOGITS_OF_A_BATCH / vocab_size);
    (tokens / context_length).max(1)
}
