//! Predicts the memory of each use of a model, by part, from its shape alone.
//!
//! The forward pass is described once, as the list of its operations ([`GptConfig::operations`]):
//! each one's output, and what it keeps for its backward pass. The activations of training are the
//! sum of what is kept. The peak is found by walking the list backwards, like the backward pass:
//! each operation needs the gradient of its output, produces those of its input and parameters, and
//! frees what it kept. `train/tests/programs/ledger.rs` compares the predictions with the
//! allocator's counts, for several shapes.

pub mod training;
mod walk;

use burn::tensor::Device;
use ember_decoding::score::MAX_LOGITS;
use ember_kernels::{is_cpu, limits::values_at_once};
use ember_model::GptConfig;
use ember_model::operations::{Kind, Operation};
use serde::Serialize;

use crate::step::gradient::logits_of_a_piece;

pub use training::{training, worst};

/// Bytes by purpose, each part at its largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// The parameters.
    pub weights_bytes: u64,
    /// The gradients, one for each parameter.
    pub gradients_bytes: u64,
    /// The optimizer's running means.
    pub moments_bytes: u64,
    /// What the graph keeps from the forward pass for the backward pass.
    pub activations_bytes: u64,
    /// The logits.
    pub logits_bytes: u64,
    /// The KV cache.
    pub cache_bytes: u64,
    /// The most bytes at once: not the sum, since the parts do not all peak together, and since
    /// every operation needs working memory.
    pub peak_bytes: u64,
}

impl Parts {
    /// Each part with its name, the peak last.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("weights", self.weights_bytes),
            ("gradients", self.gradients_bytes),
            ("moments", self.moments_bytes),
            ("activations", self.activations_bytes),
            ("logits", self.logits_bytes),
            ("cache", self.cache_bytes),
            ("peak", self.peak_bytes),
        ]
    }

    /// The parts of training with their names: all except the cache and the peak.
    pub fn named_of_training(&self) -> [(&'static str, u64); 5] {
        let [weights, gradients, moments, activations, logits, _cache, _peak] = self.named();
        [weights, gradients, moments, activations, logits]
    }
}

/// The size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows.
    pub batch: usize,
    /// Tokens in each.
    pub time: usize,
}

/// Where the kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// On the CPU: one custom operation for each line of the model, which keeps little.
    Cpu,
    /// On a GPU: the same operations, which keep the same. Matrix products need no float32 copies
    /// of half types, and the logits have the model's precision. Memory is measured at the end of
    /// each phase (forward, backward, step).
    Gpu {
        /// Logits that a pass computes at once: the GPU's buffers may hold few.
        most_logits: usize,
        /// Values that a tensor may have, so that it fits into one buffer.
        most_values: usize,
    },
}

impl Kernels {
    /// The kernels for `device`.
    pub fn on(device: &Device) -> Self {
        if is_cpu(device) {
            return Self::Cpu;
        }
        Self::Gpu { most_logits: logits_of_a_piece(device), most_values: values_at_once(usize::MAX, device) }
    }

    /// Whether they run on a GPU.
    pub fn are_on_gpu(self) -> bool {
        self != Self::Cpu
    }
}

/// Number of operations in the forward pass.
pub fn operation_count(config: &GptConfig) -> usize {
    config.operations().sum(|_| 1)
}

/// The most values that `tokens` tokens need in a block without a graph: the input and output of
/// its widest operation, and the residual stream.
fn forward_peak(config: &GptConfig, tokens: usize) -> usize {
    let held = |operation: &Operation| match operation.kind {
        Kind::Rotate => operation.n_out, // in place
        Kind::Attention { n_head } => operation.n_in + operation.n_out + n_head,
        _ => operation.n_in + operation.n_out,
    };
    tokens * (config.n_embd + config.operations().block.iter().map(held).max().unwrap_or(0))
}

fn bytes(values: usize) -> u64 {
    4 * values as u64
}

/// Predicts the memory of inference on one kind of device for one batch size; [`training()`]
/// predicts that of training.
#[derive(Clone, Copy, Debug)]
pub struct Prediction<'a> {
    /// The model's shape.
    pub config: &'a GptConfig,
    /// The size of the batches.
    pub sizes: Sizes,
    /// Where it runs: on a GPU the peaks are those at the end of each phase (forward, backward,
    /// step), where its memory is measured.
    pub kernels: Kernels,
}

impl Prediction<'_> {
    /// Tokens in the whole batch.
    fn tokens(&self) -> usize {
        self.sizes.batch * self.sizes.time
    }

    /// Values in its residual stream.
    fn stream(&self) -> usize {
        self.tokens() * self.config.n_embd
    }

    /// The parts of inference, which needs `at_work` values beside the weights at its peak, and
    /// `left` when it has ended.
    fn inference(&self, at_work: usize, left: usize, logits: usize, cache_bytes: u64) -> Parts {
        let weights = self.config.parameters();
        let most = if self.kernels.are_on_gpu() { left } else { at_work.max(left) };
        Parts {
            weights_bytes: bytes(weights),
            logits_bytes: bytes(logits),
            cache_bytes,
            peak_bytes: bytes(weights + most) + cache_bytes,
            ..Parts::default()
        }
    }

    /// A forward pass without a graph.
    pub fn forward(&self) -> Parts {
        let logits = self.tokens() * self.config.vocab_size;
        let at_work = forward_peak(self.config, self.tokens()).max(self.stream() + logits);
        self.inference(at_work, logits, logits, 0)
    }

    /// Scoring known text: the logits of some positions at once, twice because of their logarithms;
    /// none are left at the end.
    pub fn score(&self) -> Parts {
        let at_once = self.tokens().min((MAX_LOGITS / self.config.vocab_size).max(1));
        let head = self.stream() + at_once * (self.config.n_embd + 2 * self.config.vocab_size);
        self.inference(forward_peak(self.config, self.tokens()).max(head), 0, 0, 0)
    }

    /// A prefill of `prompt` tokens in each row, into a cache for the whole batch.
    pub fn prefill(&self, prompt: usize) -> Parts {
        let Sizes { batch, time } = self.sizes;
        let n = batch * prompt * self.config.n_embd;
        let logits = batch * self.config.vocab_size;
        // The logits are returned to the host: on the CPU that is the same memory, on a GPU not.
        let held = if self.kernels.are_on_gpu() { 0 } else { logits };
        let at_work = forward_peak(self.config, batch * prompt).max(n + logits);
        self.inference(at_work, 0, held, self.config.kv_cache_bytes(batch, time) as u64)
    }

    /// Decoding token by token with a cache for the whole batch.
    pub fn decode(&self) -> Parts {
        self.prefill(1)
    }

    /// Decoding without a cache: the whole text goes through the model for every token, and only
    /// the last position through the head.
    pub fn decode_uncached(&self) -> Parts {
        let logits = self.sizes.batch * self.config.vocab_size;
        self.inference(forward_peak(self.config, self.tokens()).max(self.stream() + logits), 0, 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use itertools::Itertools;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn more_of_anything_never_needs_less(
            n_layer in 1usize..4, head in 1usize..4, width in 1usize..9, vocab in 2usize..60, batch in 1usize..4, time in 2usize..20,
            dropout in prop::bool::ANY,
        ) {
            let mut config = GptConfig::new(vocab, 32, n_layer, head, head * width);
            config.dropout = if dropout { 0.1 } else { 0.0 };
            for kernels in [Kernels::Cpu, Kernels::Gpu { most_logits: 1 << 28, most_values: usize::MAX }] {
                let all = |config: &GptConfig, sizes: Sizes| {
                    let predict = Prediction { config, sizes, kernels };
                    [
                        predict.forward(), predict.score(), predict.prefill(1), predict.decode(), predict.decode_uncached(),
                    ]
                    .map(|parts| parts.peak_bytes)
                };
                let sizes = Sizes { batch, time };
                let peaks = all(&config, sizes);
                let mut deeper = config.clone();
                deeper.n_layer += 1;
                for more in [
                    all(&config, Sizes { batch: batch + 1, time }),
                    all(&config, Sizes { batch, time: time + 1 }),
                    all(&deeper, sizes),
                ] {
                    prop_assert!(peaks.iter().zip_eq(&more).all(|(less, more)| less <= more), "{peaks:?} {more:?}");
                }
            }
        }
    }
}
