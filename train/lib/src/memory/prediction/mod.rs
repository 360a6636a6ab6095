//! What each way of using a model needs in memory, by part, from its shape alone.
//!
//! The forward pass is written down once, as the list of its operations
//! ([`GptConfig::operations`]): what each puts out, and what it leaves behind for its backward.
//! The activations of training are the sum of what is left behind. The peak is found by walking
//! the list back as the backward does: each operation needs the gradient of its output, makes that
//! of its input and its parameters', and lets go of what it kept. `train/tests/programs/ledger.rs`
//! compares all of it with what the program's allocator counts, at several shapes.

pub mod training;
mod walk;

use burn::tensor::Device;
use ember_decoding::score::MOST_LOGITS;
use ember_kernels::is_cpu;
use ember_model::GptConfig;
use ember_model::operations::{Kind, Operation};
use serde::Serialize;

pub use training::{training, worst};

/// Bytes by what they are for, each part at its largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// The parameters.
    pub weights_bytes: u64,
    /// One for each parameter.
    pub gradients_bytes: u64,
    /// AdamW's two means for each parameter.
    pub moments_bytes: u64,
    /// What the graph keeps of the forward for the backward.
    pub activations_bytes: u64,
    /// Logits that are held.
    pub logits_bytes: u64,
    /// Keys and values.
    pub cache_bytes: u64,
    /// The most that is there at once: not the sum, since the parts are not all at their largest
    /// together, and since every operation needs room to work in.
    pub peak_bytes: u64,
}

impl Parts {
    /// Each by its name, the peak last.
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

    /// Those that training has, by name: all but a cache, and not the peak.
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

/// Where our operations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// On the CPU: one operation of ours for each line of the model, which keeps little.
    Cpu,
    /// On a GPU: the same operations, which keep the same. Products need no float32 copies of
    /// halves, and the logits are of the type that the model computes in. Its memory is read at the
    /// ends of the phases (forward, backward, step).
    Gpu,
}

impl Kernels {
    /// Those that run on `device`.
    pub fn on(device: &Device) -> Self {
        if is_cpu(device) { Self::Cpu } else { Self::Gpu }
    }
}

/// How many operations the forward pass of our kernels has.
pub fn operation_count(config: &GptConfig) -> usize {
    config.operations().sum(|_| 1)
}

/// The most values that so many tokens hold in a block without a graph: what its widest operation
/// reads and makes, and the residual stream beside it.
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

/// What inference on one kind of device needs for batches of one size; [`training()`] has what
/// training needs.
#[derive(Clone, Copy, Debug)]
pub struct Prediction<'a> {
    /// The model's shape.
    pub config: &'a GptConfig,
    /// The size of the batches.
    pub sizes: Sizes,
    /// Where it runs: on a GPU the peaks are those at the ends of the phases (forward, backward,
    /// step), which is where its memory is read.
    pub kernels: Kernels,
}

impl Prediction<'_> {
    /// Tokens of the whole batch.
    fn tokens(&self) -> usize {
        self.sizes.batch * self.sizes.time
    }

    /// Values of its residual stream.
    fn stream(&self) -> usize {
        self.tokens() * self.config.n_embd
    }

    /// What inference has in use beside the weights: `at_work` values at its worst moment, `left`
    /// when it has ended.
    fn inference(&self, at_work: usize, left: usize, logits: usize, cache_bytes: u64) -> Parts {
        let weights = self.config.parameters();
        let most = if self.kernels == Kernels::Gpu { left } else { at_work.max(left) };
        Parts {
            weights_bytes: bytes(weights),
            logits_bytes: bytes(logits),
            cache_bytes,
            peak_bytes: bytes(weights + most) + cache_bytes,
            ..Parts::default()
        }
    }

    /// A forward pass that nothing is recorded of.
    pub fn forward(&self) -> Parts {
        let logits = self.tokens() * self.config.vocab_size;
        let at_work = forward_peak(self.config, self.tokens()).max(self.stream() + logits);
        self.inference(at_work, logits, logits, 0)
    }

    /// Scoring known text: the logits of so many positions at once, twice over for their
    /// logarithms, and none left.
    pub fn score(&self) -> Parts {
        let at_once = self.tokens().min((MOST_LOGITS / self.config.vocab_size).max(1));
        let head = self.stream() + at_once * (self.config.n_embd + 2 * self.config.vocab_size);
        self.inference(forward_peak(self.config, self.tokens()).max(head), 0, 0, 0)
    }

    /// A prefill of `prompt` tokens in each row, into a cache with room for the batch's.
    pub fn prefill(&self, prompt: usize) -> Parts {
        let Sizes { batch, time } = self.sizes;
        let n = batch * prompt * self.config.n_embd;
        let logits = batch * self.config.vocab_size;
        // The host is given the logits: the same memory on the CPU, elsewhere none of the device's.
        let held = if self.kernels == Kernels::Gpu { 0 } else { logits };
        let at_work = forward_peak(self.config, batch * prompt).max(n + logits);
        self.inference(at_work, 0, held, self.config.kv_cache_bytes(batch, time) as u64)
    }

    /// Decoding token by token with a cache that has room for the whole batch.
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
            for kernels in [Kernels::Cpu, Kernels::Gpu] {
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
