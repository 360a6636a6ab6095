//! The shape of a GPT, and what follows from the shape alone: parameters, FLOPs, memory.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// The shape of a GPT-2 style model; everything needed to build one, nothing about how it is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GptConfig {
    /// Number of token ids; the width of the logits.
    pub vocab_size: usize,
    /// Most tokens the model can look back on; the number of learned positions.
    pub context_length: usize,
    /// Number of transformer blocks.
    pub n_layer: usize,
    /// Attention heads in each block; divides `n_embd`.
    pub n_head: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Probability with which training drops an activation, where GPT-2 does: after the embeddings,
    /// on the attention weights, and on what each block adds to the residual stream.
    pub dropout: f64,
    /// Added to the variance in every LayerNorm.
    pub layer_norm_epsilon: f64,
    /// Whether the head is the token embedding itself (GPT-2) or has weights of its own.
    pub tied_head: bool,
}

impl GptConfig {
    /// GPT-2's defaults (no dropout, tied head) around the given sizes.
    pub fn new(vocab_size: usize, context_length: usize, n_layer: usize, n_head: usize, n_embd: usize) -> Self {
        Self {
            vocab_size,
            context_length,
            n_layer,
            n_head,
            n_embd,
            dropout: 0.0,
            layer_norm_epsilon: 1e-5,
            tied_head: true,
        }
    }

    /// Width of one attention head, `n_embd / n_head`.
    pub fn head_size(&self) -> usize {
        self.n_embd / self.n_head
    }

    /// Refuses a shape that no model can have, naming the value at fault.
    ///
    /// # Errors
    /// When a size is 0, `n_head` does not divide `n_embd`, a probability is outside `[0, 1)`, or the sizes multiply past
    /// what can be addressed.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [
            ("vocab_size", self.vocab_size),
            ("context_length", self.context_length),
            ("n_layer", self.n_layer),
            ("n_head", self.n_head),
            ("n_embd", self.n_embd),
        ] {
            ensure!(value > 0, "{name} is 0; it must be at least 1");
            ensure!(value <= 1 << 28, "{name} is {value}, which no machine can hold; choose a smaller one");
        }
        ensure!(
            self.n_embd.is_multiple_of(self.n_head),
            "n_embd {} is not a multiple of n_head {}; each head takes an equal share of the width",
            self.n_embd,
            self.n_head
        );
        ensure!((0.0..1.0).contains(&self.dropout), "dropout is {}; it must be at least 0 and below 1", self.dropout);
        ensure!(
            self.layer_norm_epsilon > 0.0 && self.layer_norm_epsilon < 1.0,
            "layer_norm_epsilon is {}; it must be between 0 and 1, usually 1e-5",
            self.layer_norm_epsilon
        );
        let parameters = self.parameters_f64();
        ensure!(
            parameters < 1e13,
            "this shape has {parameters:.1e} parameters, which no machine can hold; choose smaller sizes"
        );
        Ok(())
    }

    /// Number of trainable values; a tied head counts once.
    pub fn parameters(&self) -> usize {
        let (c, layers) = (self.n_embd, self.n_layer);
        // ln_1 and ln_2: 4c; c_attn: 3c*c + 3c; attn.c_proj: c*c + c; c_fc: 4c*c + 4c; mlp.c_proj: 4c*c + c.
        let block = 12 * c * c + 13 * c;
        let head = if self.tied_head { 0 } else { self.vocab_size * c };
        self.vocab_size * c + self.context_length * c + layers * block + 2 * c + head
    }

    /// FLOPs of one token in training, forward and backward: `6 N + 12 n_layer n_embd context_length`, where N leaves out
    /// the position table, which is only looked up (PaLM, appendix B; a multiply-add counts as two).
    pub fn training_flops_per_token(&self) -> f64 {
        let n = (self.parameters() - self.context_length * self.n_embd) as f64;
        6.0 * n + 12.0 * (self.n_layer * self.n_embd * self.context_length) as f64
    }

    /// FLOPs of one token in inference with `context` tokens to look back on: a third of training's, since there is no backward.
    pub fn inference_flops_per_token(&self, context: usize) -> f64 {
        let n = (self.parameters() - self.context_length * self.n_embd) as f64;
        2.0 * n + 4.0 * (self.n_layer * self.n_embd * context) as f64
    }

    /// Bytes of a float32 [`crate::KvCache`]: keys and values of every layer for `batch` rows of `capacity` tokens.
    pub fn kv_cache_bytes(&self, batch: usize, capacity: usize) -> usize {
        4 * 2 * self.n_layer * batch * capacity * self.n_embd
    }

    fn parameters_f64(&self) -> f64 {
        let (v, t, l, c) =
            (self.vocab_size as f64, self.context_length as f64, self.n_layer as f64, self.n_embd as f64);
        v * c * if self.tied_head { 1.0 } else { 2.0 } + t * c + l * (12.0 * c * c + 13.0 * c) + 2.0 * c
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The published size of GPT-2 small: 124,439,808.
    #[test]
    fn gpt2_has_its_published_number_of_parameters() {
        let gpt2 = GptConfig::new(50257, 1024, 12, 12, 768);
        assert_eq!(gpt2.parameters(), 124_439_808);
        assert_eq!(gpt2.parameters_f64(), 124_439_808.0);
        // llm.c's published run: 468,000 tokens/s are 40.4% of 989 TFLOP/s by this formula.
        assert!((468_000.0 * gpt2.training_flops_per_token() / 989e12 - 0.404).abs() < 0.001);
    }

    #[test]
    fn impossible_shapes_name_what_is_wrong() {
        let word = |change: fn(&mut GptConfig)| {
            let mut config = GptConfig::new(65, 64, 4, 4, 128);
            change(&mut config);
            config.validate().map_err(|e| e.to_string()).unwrap_err()
        };
        assert!(word(|c| c.n_head = 3).contains("n_head 3"));
        assert!(word(|c| c.n_layer = 0).contains("n_layer is 0"));
        assert!(word(|c| c.dropout = 1.0).contains("dropout is 1"));
        assert!(word(|c| c.n_embd = 1 << 27).contains("no machine"));
    }
}
