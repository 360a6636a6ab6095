//! How many rows of a generation fit into memory at once.

use ember_model::GptConfig;
use ember_model::operations::{Kind, Operation};

/// Most rows in one pass through the model; more would hardly lower the cost per row.
pub const MAX_ROWS: usize = 64;

/// Peak bytes of float32 that one row of a generation needs, besides the shared weights.
///
/// - The KV cache: [`GptConfig::kv_cache_bytes`] for the prompt and the new tokens, at most the
///   context.
/// - Three copies of the logits, `vocab_size` each: the model's, the host's, and the one that
///   processors edit.
/// - The activations of the longest prefill (the prompt's, or the whole window's if it will slide).
///   Per token these are the inputs of a block's matrix products, attention and activation
///   functions, counted as if all were live at once (14 times `n_embd` in GPT-2), and `2 * n_head`
///   attention scores per attended token, before and after their softmax. The CPU's attention keeps
///   only a block of the scores, so there this is an upper bound.
pub fn row_bytes(config: &GptConfig, prompt_len: usize, max_new_tokens: usize) -> usize {
    let whole = prompt_len.saturating_add(max_new_tokens);
    let capacity = whole.min(config.context_length);
    let prefilled = if whole > config.context_length { config.context_length } else { prompt_len };
    let read = |operation: &Operation| match operation.kind {
        Kind::Product { .. } | Kind::HeadNorms { .. } | Kind::Attention { .. } | Kind::Activation => operation.n_in,
        _ => 0, // reads the residual stream or works in place
    };
    let widths: usize = config.operations().block.iter().map(read).sum();
    let activations = prefilled * (widths + 2 * config.n_head * prefilled);
    config.kv_cache_bytes(1, capacity) + 4 * (3 * config.vocab_size + activations)
}

/// How many prompts of up to `prompt_len` tokens can be continued together, each as
/// `rows_per_prompt` rows (beams or returned sequences). The rows are at most 64 and take at most
/// half of `memory_bytes`, which leaves the other half to the allocator and everything else. Always
/// at least 1, since the user asked for it.
pub fn batch_size(
    memory_bytes: usize,
    config: &GptConfig,
    prompt_len: usize,
    rows_per_prompt: usize,
    max_new_tokens: usize,
) -> usize {
    let rows = (memory_bytes / 2 / row_bytes(config, prompt_len, max_new_tokens)).min(MAX_ROWS);
    (rows / rows_per_prompt.max(1)).max(1)
}

/// How many prompts of up to `prompt_len` tokens can be continued together, as in [`batch_size`],
/// in a KV cache of `positions`: a device holds no more than
/// [`KvCache::most_slots`](ember_model::KvCache::most_slots). Always at least 1.
pub fn prompts_in_cache(
    positions: usize,
    config: &GptConfig,
    prompt_len: usize,
    rows_per_prompt: usize,
    max_new_tokens: usize,
) -> usize {
    let of_a_row = prompt_len.saturating_add(max_new_tokens).clamp(1, config.context_length.max(1));
    (positions / of_a_row / rows_per_prompt.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_row_by_hand() {
        let config = GptConfig::new(10, 32, 2, 4, 8);
        // 2 layers of keys and values, 8 wide, for 5 + 7 tokens; 3 * 10 logits; 5 tokens prefilled.
        let cache = 4 * 2 * 2 * 8 * 12;
        assert_eq!(row_bytes(&config, 5, 7), cache + 4 * (30 + 5 * (14 * 8 + 2 * 4 * 5)));
        // Longer than the context: the cache is full, and the sliding window is prefilled again.
        let cache = 4 * 2 * 2 * 8 * 32;
        assert_eq!(row_bytes(&config, 5, 28), cache + 4 * (30 + 32 * (14 * 8 + 2 * 4 * 32)));
    }

    #[test]
    fn gpt2_fits_as_often_as_memory_allows() {
        let gpt2 = GptConfig::new(50257, 1024, 12, 12, 768);
        assert_eq!(batch_size(1 << 30, &gpt2, 16, 1, 240), 26); // 20.2 MB a row, nearly all of it cache
        assert_eq!(batch_size(1 << 30, &gpt2, 16, 4, 240), 6);
        assert_eq!(batch_size(64 << 30, &gpt2, 16, 1, 240), 64);
        assert_eq!(batch_size(0, &gpt2, 16, 1, 240), 1);
        assert_eq!(batch_size(64 << 30, &gpt2, 16, 100, 240), 1);
    }

    #[test]
    fn a_cache_holds_as_many_rows_as_it_has_positions_for() {
        let gpt2 = GptConfig::new(50257, 1024, 12, 12, 768);
        // 128 MiB of keys: 43,690 positions of 768 float32 numbers.
        let prompts = |rows, new| prompts_in_cache((128 << 20) / (4 * 768), &gpt2, 16, rows, new);
        assert_eq!([prompts(1, 240), prompts(4, 240), prompts(100, 1008)], [170, 42, 1]);
        assert_eq!(prompts(1, 5000), 42, "a row never has more positions than the context");
    }

    proptest! {
        #[test]
        fn a_batch_fits_or_is_a_single_prompt(
            memory in 0..1_usize << 34, prompt in 1..3000_usize, new in 1..3000_usize, rows in 1..20_usize,
        ) {
            let config = GptConfig::new(8192, 1024, 6, 6, 384);
            let size = batch_size(memory, &config, prompt, rows, new);
            prop_assert!(size == 1 || size * rows * row_bytes(&config, prompt, new) <= memory / 2);
            prop_assert!(size == 1 || size * rows <= MAX_ROWS);
            // The batch is maximal: one more prompt would not fit.
            let more = (size + 1) * rows;
            prop_assert!(more > MAX_ROWS || more * row_bytes(&config, prompt, new) > memory / 2);
        }
    }
}
