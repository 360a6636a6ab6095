//! What each way of using a model needs in memory, by part, from its shape alone.
//!
//! The forward pass is written down once, as the list of its operations ([`operations`]): what each puts out, and what it
//! leaves behind for its backward. The activations of training are the sum of what is left behind. The peak is found by
//! walking the list back as the backward does: each operation needs the gradient of its output, makes that of its input
//! and its parameters', and lets go of what it kept. `train/tests/programs/ledger.rs` compares all of it with what the
//! program's allocator counts, at several shapes.

use ember_model::GptConfig;
use serde::Serialize;

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
    /// The most that is there at once: not the sum, since the parts are not all at their largest together, and since every
    /// operation needs room to work in.
    pub peak_bytes: u64,
}

/// The size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows.
    pub batch: usize,
    /// Tokens in each.
    pub time: usize,
}

/// Which formulas run: our kernels on the CPU, burn's own operations elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// One operation of ours for each line of the model, which keeps little.
    Fused,
    /// The textbook formulas, every step of them an operation that keeps its inputs.
    Plain,
}

/// One operation of the forward pass, in float32 values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it is.
    pub name: &'static str,
    /// Values that it takes in.
    pub input: usize,
    /// Values that it puts out.
    pub output: usize,
    /// Values that it keeps for its backward.
    pub keeps: usize,
    /// Parameters that it has, each of which gets a gradient.
    pub parameters: usize,
    /// What it does to the residual stream.
    residual: Residual,
}

/// Where an operation stands to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residual {
    /// Nowhere.
    Away,
    /// It reads the stream at the beginning of a branch.
    Reads,
    /// It adds the branch to the stream.
    Adds,
}

/// The forward pass of our kernels, first operation to last.
///
/// Kept are the inputs of LayerNorms, matrix products and GELUs, the joint projection, and the attention weights
/// `[batch, n_head, time, time]`. Additions, embeddings and dropout (whose mask can be computed again) keep nothing.
pub fn operations(config: &GptConfig, sizes: Sizes) -> Vec<Operation> {
    use Residual::{Adds, Away, Reads};
    let (c, vocab) = (config.n_embd, config.vocab_size);
    let n = sizes.batch * sizes.time * c;
    let attention_weights = sizes.batch * config.n_head * sizes.time * sizes.time;
    let op = |name, input, output, keeps, parameters, residual| Operation {
        name,
        input,
        output,
        keeps,
        parameters,
        residual,
    };
    let dropout = (config.dropout > 0.0).then(|| op("dropout", n, n, 0, 0, Away));

    let mut list = vec![
        op("wte", 0, n, 0, vocab * c, Away),
        op("wpe", 0, n / sizes.batch, 0, config.context_length * c, Away),
        op("wte + wpe", n, n, 0, 0, Away),
    ];
    list.extend(dropout);
    for _ in 0..config.n_layer {
        list.extend([
            op("ln_1", n, n, n, 2 * c, Reads),
            op("attn.c_attn", n, 3 * n, n, 3 * c * c + 3 * c, Away),
            op("attention", 3 * n, n, 3 * n + attention_weights, 0, Away),
            op("attn.c_proj", n, n, n, c * c + c, Away),
        ]);
        list.extend(dropout);
        list.extend([
            op("x + attention", n, n, 0, 0, Adds),
            op("ln_2", n, n, n, 2 * c, Reads),
            op("mlp.c_fc", n, 4 * n, n, 4 * c * c + 4 * c, Away),
            op("gelu", 4 * n, 4 * n, 4 * n, 0, Away),
            op("mlp.c_proj", 4 * n, n, 4 * n, 4 * c * c + c, Away),
        ]);
        list.extend(dropout);
        list.push(op("x + mlp", n, n, 0, 0, Adds));
    }
    let tied = if config.tied_head { vocab * c } else { 0 };
    let head = sizes.batch * sizes.time * vocab;
    list.push(op("ln_f", n, n, n, 2 * c, Away));
    // A tied head's gradient is one of its own until it is added to the embedding's, which the list counts.
    list.push(op("lm_head", n, head, n, if tied > 0 { 0 } else { vocab * c }, Away));
    list
}

/// Values that the graph keeps for the backward after a whole forward pass, beside the logits.
fn kept(config: &GptConfig, sizes: Sizes) -> usize {
    operations(config, sizes).iter().map(|operation| operation.keeps).sum()
}

/// The most values that the backward holds at once: activations not yet let go, gradients made so far, and the two ends of
/// the operation at work. Its beginning counts: all activations, and the gradient of the logits, which stands in their place.
fn backward_peak(config: &GptConfig, sizes: Sizes) -> usize {
    let operations = operations(config, sizes);
    let mut kept: usize = operations.iter().map(|operation| operation.keeps).sum();
    let tied = if config.tied_head { config.vocab_size * config.n_embd } else { 0 };
    // The gradient of the residual stream, held while a branch's is computed; the branch begins with the same one.
    let (mut gradients, mut stream, mut shared, mut peak) = (0, 0, false, 0);
    for operation in operations.iter().rev() {
        let Operation { name, input, output, keeps, parameters, residual } = *operation;
        if residual == Residual::Adds {
            (stream, shared) = (output, true);
            continue;
        }
        let dy = if std::mem::take(&mut shared) { 0 } else { output };
        if name == "lm_head" {
            gradients += tied;
        }
        peak = peak.max(kept + gradients + stream + dy + input + parameters);
        kept -= keeps;
        gradients += parameters;
        if residual == Residual::Reads {
            stream = 0;
        }
    }
    peak
}

/// The most values that a forward pass without a graph holds at once: each operation's input, output and what it works with,
/// and the residual stream beside them.
fn forward_peak(config: &GptConfig, sizes: Sizes) -> usize {
    let tokens = sizes.batch * sizes.time;
    let n = tokens * config.n_embd;
    let attention = 5 * n + sizes.batch * config.n_head * sizes.time * sizes.time; // stream, qkv, output, weights
    let gelu = 9 * n; // stream, its input, its output
    gelu.max(attention)
}

fn bytes(values: usize) -> u64 {
    4 * values as u64
}

/// Parts of one training step: forward, loss, backward, AdamW.
pub fn training_step(config: &GptConfig, sizes: Sizes) -> Parts {
    let parameters = config.parameters();
    let logits = sizes.batch * sizes.time * config.vocab_size;
    let working = backward_peak(config, sizes).max(parameters);
    Parts {
        weights_bytes: bytes(parameters),
        gradients_bytes: bytes(parameters),
        moments_bytes: bytes(2 * parameters),
        activations_bytes: bytes(kept(config, sizes)),
        logits_bytes: bytes(logits),
        cache_bytes: 0,
        peak_bytes: bytes(3 * parameters + working),
    }
}

/// Parts of a forward pass whose graph is recorded.
pub fn forward_with_graph(config: &GptConfig, sizes: Sizes) -> Parts {
    let (parameters, logits) = (config.parameters(), sizes.batch * sizes.time * config.vocab_size);
    let kept = kept(config, sizes);
    Parts {
        weights_bytes: bytes(parameters),
        activations_bytes: bytes(kept),
        logits_bytes: bytes(logits),
        peak_bytes: bytes(parameters + kept + logits),
        ..Parts::default()
    }
}

/// Parts of a forward pass that nothing is recorded of.
pub fn forward(config: &GptConfig, sizes: Sizes) -> Parts {
    let (parameters, tokens) = (config.parameters(), sizes.batch * sizes.time);
    let (n, logits) = (tokens * config.n_embd, tokens * config.vocab_size);
    Parts {
        weights_bytes: bytes(parameters),
        logits_bytes: bytes(logits),
        peak_bytes: bytes(parameters + forward_peak(config, sizes).max(n + logits)),
        ..Parts::default()
    }
}

/// Parts of scoring known text: the logits of at most so many positions at once, twice over for their logarithms.
pub fn score(config: &GptConfig, sizes: Sizes) -> Parts {
    let (parameters, tokens) = (config.parameters(), sizes.batch * sizes.time);
    let n = tokens * config.n_embd;
    let at_once = tokens.min((ember_generate::score::MOST_LOGITS / config.vocab_size).max(1));
    let logits = at_once * config.vocab_size;
    let head = n + at_once * config.n_embd + 2 * logits;
    Parts {
        weights_bytes: bytes(parameters),
        logits_bytes: bytes(logits),
        peak_bytes: bytes(parameters + forward_peak(config, sizes).max(head)),
        ..Parts::default()
    }
}

/// Parts of a prefill of `prompt` tokens in each row, into a cache with room for `sizes.time`.
pub fn prefill(config: &GptConfig, sizes: Sizes, prompt: usize) -> Parts {
    let parameters = config.parameters();
    let cache = config.kv_cache_bytes(sizes.batch, sizes.time) as u64;
    let n = sizes.batch * prompt * config.n_embd;
    let logits = sizes.batch * config.vocab_size;
    Parts {
        weights_bytes: bytes(parameters),
        logits_bytes: bytes(logits),
        cache_bytes: cache,
        peak_bytes: bytes(parameters + (9 * n).max(n + logits)) + cache,
        ..Parts::default()
    }
}

/// Parts of decoding token by token with a cache that has room for `sizes.time`.
pub fn decode(config: &GptConfig, sizes: Sizes) -> Parts {
    prefill(config, sizes, 1)
}

/// Parts of decoding without a cache: the whole text goes through the model for every token, and only the last position
/// through the head.
pub fn decode_uncached(config: &GptConfig, sizes: Sizes) -> Parts {
    let (parameters, logits) = (config.parameters(), sizes.batch * config.vocab_size);
    let n = sizes.batch * sizes.time * config.n_embd;
    Parts {
        weights_bytes: bytes(parameters),
        logits_bytes: bytes(logits),
        peak_bytes: bytes(parameters + forward_peak(config, sizes).max(n + logits)),
        ..Parts::default()
    }
}
