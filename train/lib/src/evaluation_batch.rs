//! The batch size of an evaluation, for the training loop and for the prediction of its memory.

/// Most tokens in a batch: enough to keep any device busy.
const TOKENS_OF_A_BATCH: usize = 8192;
/// Most logits in a batch, over all positions.
const LOGITS_OF_A_BATCH: usize = 32 << 20;

/// Windows that go through the model in one forward pass.
pub fn rows_at_once(context_length: usize, vocab_size: usize) -> usize {
    let tokens = TOKENS_OF_A_BATCH.min(LOGITS_OF_A_BATCH / vocab_size);
    (tokens / context_length).max(1)
}
