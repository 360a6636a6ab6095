//! Floating-point operations of the matrix products: a multiply-add counts as two, and a position
//! attends to itself and to those before it. Everything else (norms, GELUs, softmax, additions) is
//! left out, a percent or two of the work.

use ember_model::GptConfig;
use ember_model::operations::{Operation, Operations};

/// FLOPs of `tokens` positions that together attend to `attended` positions in each layer, and of
/// which `predicted` go through the head: `2 * tokens * n_layer * M + 4 * attended * n_layer *
/// n_embd + 2 * predicted * n_embd * vocab_size`, where M is the number of weights that a position
/// is multiplied with in a block (`12 n_embd^2` in GPT-2), and attention is as wide as its queries.
pub fn forward(config: &GptConfig, tokens: usize, attended: usize, predicted: usize) -> f64 {
    let Operations { block, n_layer, head, .. } = config.operations();
    let multiply_adds = |list: &[Operation], tokens: usize| -> f64 {
        let each = list.iter().map(Operation::multiply_adds);
        each.map(|[own, seen]| own as f64 * tokens as f64 + seen as f64 * attended as f64).sum()
    };
    2.0 * (n_layer as f64 * multiply_adds(&block, tokens) + multiply_adds(&head, predicted))
}

/// Positions attended to by those from `from` to `to` of one row, themselves included: the sum of
/// `from + 1 ..= to`.
pub fn attended(from: usize, to: usize) -> usize {
    (to * (to + 1) - from * (from + 1)) / 2
}

/// FLOPs of training: every matrix product of the forward has two of its size in the backward, one
/// for the gradient of each factor.
pub fn training(forward: f64) -> f64 {
    3.0 * forward
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_model_by_hand() {
        let config = GptConfig::new(10, 8, 1, 1, 2);
        // Three positions of a row: 48 weights in the block, 2 in the head; they see 1 + 2 + 3.
        assert_eq!(attended(0, 3), 6);
        assert_eq!(forward(&config, 3, 6, 3), 2.0 * 3.0 * 48.0 + 4.0 * 6.0 * 2.0 + 2.0 * 3.0 * 20.0);
    }

    #[test]
    fn prefill_and_decoding_do_together_what_one_pass_does() {
        let config = GptConfig::new(50, 32, 3, 2, 16);
        let whole = forward(&config, 20, attended(0, 20), 20);
        let prefill = forward(&config, 12, attended(0, 12), 12);
        let decoded: f64 = (12..20).map(|i| forward(&config, 1, attended(i, i + 1), 1)).sum();
        assert_eq!(whole, prefill + decoded);
    }

    /// The textbook's count for long texts differs: it lets every position attend to the whole
    /// context.
    #[test]
    fn it_agrees_with_the_count_that_utilisation_is_judged_by() {
        for tied_head in [true, false] {
            let mut config = GptConfig { tied_head, ..GptConfig::new(50257, 1024, 12, 12, 768) };
            let t = config.context_length;
            let ours = training(forward(&config, t, t * t, t));
            let textbook = config.training_flops_per_token() * t as f64;
            assert!((ours / textbook - 1.0).abs() < 0.002, "{ours} {textbook}");
            config.n_layer = 1;
            assert!(forward(&config, 1, 1, 1) < ours);
        }
    }
}
