//! The configuration keys, each defined once: name, type, default, range, unit, meaning, and its
//! names in other trainers.
//!
//! All else is generated from this table: the configuration ([`TrainConfig`]), the keys that the
//! user set ([`Settings`]), the checks, the help, the comments in a saved `config.toml` and the
//! suggestion for a mistyped key. `auto`: the program chooses from the text and the device (see
//! `resolve`), and says why.

use ember_data::{prepare::HoldOut, source::Clean};
use ember_model::{MlpKind, NormKind, Positions};
use serde::{Deserialize, Serialize};

use super::key::Kind::{Above, Below, Choice, Count, Flag, Paths, Real, Text, Texts};
use super::key::{Group, Key, MANY, keys};
use crate::error::ConfigError;

/// Upper bound of decay factors: closer to 1, float32 would round them to 1, and a moving average
/// would never change.
const NEAR_ONE: f64 = 0.9999999;

/// The type that matrix products are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// float32.
    F32,
    /// bfloat16: float32's range with 8 bits of precision.
    Bf16,
    /// float16: 11 bits of precision, and a small range, so the loss must be scaled.
    F16,
}

impl Precision {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// AdamW for everything.
    AdamW,
    /// Muon for the matrices of the blocks, AdamW for the rest.
    Muon,
}

impl OptimizerKind {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdamW => "adamw",
            Self::Muon => "muon",
        }
    }
}

/// What happens to a gradient with an unusually large norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spikes {
    /// Only the usual clipping.
    Off,
    /// It is scaled down to the usual norm.
    Clip,
    /// Its step is skipped.
    Skip,
}

/// The learning rate's schedule after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curve {
    /// Half a cosine down ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1608.03983), equation
    /// 5, without restarts).
    Cosine,
    /// Constant, then linear decay: warm-up, stable, decay ([Hu et al.
    /// 2024](https://arxiv.org/abs/2404.06395), section 4). The constant part does not depend on
    /// the run's length, so a run can be extended before it decays. Linear decay has no constant to
    /// choose; [Hägele et al. 2024](https://arxiv.org/abs/2405.18392) compare other decays.
    Wsd,
    /// Constant.
    Constant,
}

keys! {
    "Data" {
        text: Vec<String> = [], Paths, "",
            "files and folders to learn from; empty: the built-in stories",
            ["dataset", "data", "input"];
        stories: u64 = 100_000, Count(100, 1_000_000_000), "stories",
            "number of built-in stories to generate when there is no text", [];
        tokenizer: String = "auto", Text { may_be_empty: false }, "",
            "auto, chars, bytes, bpe:N (N tokens trained on the text), or a tokenizer.json",
            ["vocab_size"];
        field: String = "text", Text { may_be_empty: false }, "",
            "the field of JSON Lines, CSV and Parquet that holds the text", [];
        encoding: String = "", Text { may_be_empty: true }, "",
            "encoding of text without a byte order mark; \"\": UTF-8, else guessed", [];
        clean: Clean = "auto", Choice(&["auto", "all", "off"]), "",
            "what to remove from the text; auto: page headers, mail quotes and signatures; all: \
             normalise characters, too", [];
        val_fraction: f64 = 0.1, Above(0.0, 0.5), "share of the text",
            "held out for validation, never trained on", [];
        hold_out: HoldOut = "any", Choice(&["any", "last"]), "",
            "validation documents; any: chosen by a seeded hash of their content; last: the last of \
             each file, for mails and chats", [];
        mask: bool = false, Flag, "",
            "replace e-mail addresses, telephone numbers, keys, card numbers and IBANs by tags",
            [];
    }
    "Model" {
        init: String = "", Text { may_be_empty: true }, "",
            "the checkpoint to begin from, with its shape and tokenizer; \"\": random weights",
            ["init_from", "pretrained", "finetune"];
        n_layer: usize = auto, Count(1, 512), "blocks",
            "depth", ["num_hidden_layers", "depth", "layers"];
        n_head: usize = auto, Count(1, 1024), "heads",
            "attention heads per block; divides n_embd", ["num_attention_heads", "heads"];
        n_embd: usize = auto, Count(1, 65_536), "channels",
            "width", ["hidden_size", "d_model", "dim", "width"];
        context_length: usize = auto, Count(1, 1_048_576), "tokens",
            "the most tokens that the model sees at once",
            ["block_size", "n_positions", "n_ctx", "seq_len", "sequence_length", "max_seq_len"];
        dropout: f64 = auto, Below(0.0, 1.0), "probability",
            "activations zeroed while training; helps when the text is read many times", [];
        architecture: String = auto, Choice(&["gpt2", "llama", "qwen3"]), "",
            "defaults of the keys below: GPT-2's parts, Llama's, or Llama's with QK-norm", ["model_type"];
        positions: Positions = auto, Choice(&["learned", "rotary"]), "",
            "position encoding", [];
        rope_theta: f64 = 10_000.0, Above(1.0, 1e12), "",
            "base of the rotary angles; larger for long contexts", ["rope_base"];
        norm: NormKind = auto, Choice(&["layernorm", "rmsnorm"]), "",
            "normalisation before each branch and the head", [];
        mlp: MlpKind = auto, Choice(MlpKind::NAMES), "",
            "activation of the MLP", ["activation", "hidden_act", "activation_function"];
        n_inner: usize = auto, Count(1, 1_048_576), "channels",
            "width of the MLP's hidden layer: 4 n_embd with gelu, about 8/3 n_embd with swiglu",
            ["intermediate_size", "ffn_dim"];
        n_kv_head: usize = auto, Count(1, 1024), "heads",
            "key and value heads, each shared by n_head / n_kv_head query heads; divides n_head",
            ["num_key_value_heads", "n_kv_heads"];
        qk_norm: bool = auto, Flag, "",
            "normalise every head's queries and keys", [];
        bias: bool = auto, Flag, "",
            "let linear layers and LayerNorms add a bias", [];
        tied_head: bool = auto, Flag, "",
            "use the token embedding as the head too", ["tie_word_embeddings", "tie_embeddings"];
    }
    "Training" {
        seed: u64 = 1337, Count(0, i64::MAX as u64), "",
            "seed of all randomness: weights, data order, dropout, samples", [];
        max_steps: u64 = auto, Count(1, MANY), "optimizer steps",
            "length of the run; an epoch is as many steps as it takes to read every window once",
            ["max_iters", "steps", "iterations", "num_steps", "epochs", "num_epochs", "num_train_epochs"];
        batch_size: usize = auto, Count(1, 1_048_576), "windows",
            "windows of context_length tokens; grad_accum_steps batches make an optimizer step",
            ["per_device_train_batch_size"];
        grad_accum_steps: usize = 1, Count(1, 1_048_576), "batches",
            "batches whose gradients are averaged into one step",
            ["gradient_accumulation_steps", "accumulate"];
        micro_batch: usize = auto, Count(1, 1_048_576), "windows",
            "windows per forward and backward pass, as many as fit into memory; divides batch_size \
             times grad_accum_steps", [];
        precision: Precision = auto, Choice(&["f32", "bf16", "f16"]), "",
            "number type of matrix products, bf16 where the device supports it; weights, moments, \
             norms, softmax and loss are always float32", ["dtype"];
        activation_checkpointing: bool = false, Flag, "",
            "keep only each block's input and recompute the rest in the backward pass: less \
             memory, a third more time; unless set, switched on if not one window fits without it",
            ["gradient_checkpointing", "checkpoint_activations"];
        optimizer: OptimizerKind = auto, Choice(&["adamw", "muon"]), "",
            "muon: orthogonal steps for the blocks' matrices, AdamW for the rest", [];
        learning_rate: f64 = auto, Real(1e-12, 1.0), "",
            "AdamW's peak, reached after warm-up; with muon for all but the blocks' matrices", ["lr", "max_lr"];
        min_learning_rate: f64 = auto, Real(0.0, 1.0), "",
            "the rate at the end of the schedule", ["min_lr", "lr_min"];
        warmup_steps: u64 = auto, Count(0, MANY), "optimizer steps",
            "linear rise from 0 to learning_rate", ["warmup_iters", "warmup"];
        lr_decay_steps: u64 = auto, Count(1, MANY), "optimizer steps",
            "the step at which cosine and wsd reach min_learning_rate", ["lr_decay_iters"];
        schedule: Curve = auto, Choice(&["cosine", "wsd", "constant"]), "",
            "after warm-up: half a cosine; constant, then linear decay over the last \
             decay_fraction; or constant",
            ["lr_scheduler_type", "scheduler", "lr_schedule", "decay_lr"];
        decay_fraction: f64 = auto, Above(0.0, 1.0), "share of lr_decay_steps",
            "length of the decay of schedule wsd", [];
        muon_learning_rate: f64 = auto, Real(1e-12, 1.0), "",
            "Muon's peak, for matrices; it follows the same schedule", [];
        muon_momentum: f64 = auto, Below(0.0, NEAR_ONE), "",
            "Muon's momentum", [];
        weight_decay: f64 = auto, Real(0.0, 10.0), "",
            "decoupled decay, on matrices only", [];
        beta1: f64 = 0.9, Below(0.0, NEAR_ONE), "",
            "AdamW: decay of the average of gradients", [];
        beta2: f64 = 0.99, Below(0.0, NEAR_ONE), "",
            "AdamW: decay of the average of squared gradients; nearer 1 for small batches", [];
        epsilon: f64 = 1e-8, Real(1e-30, 0.1), "",
            "added to AdamW's denominator", ["eps", "adam_epsilon"];
        grad_clip: f64 = 1.0, Real(0.0, 1e6), "global norm",
            "gradients with a larger norm are scaled down to this; 0: never", ["max_grad_norm", "clip"];
        z_loss: f64 = auto, Real(0.0, 1.0), "",
            "adds this times the squared logarithm of the softmax's denominator to the loss, which \
             keeps logits small: 1e-4 stabilises large models, 0.01 keeps small ones from memorising",
            [];
        label_smoothing: f64 = 0.0, Below(0.0, 1.0), "probability",
            "share of the target that is spread evenly over all tokens", [];
        calibrate: bool = auto, Flag, "",
            "divide the logits of saved models by a temperature that each evaluation moves towards the \
             lowest validation loss: a model that has read its text often is overconfident", [];
        ema_decay: f64 = 0.0, Below(0.0, NEAR_ONE), "",
            "decay of a moving average of the weights, evaluated and saved beside them; 0: none, \
             0.999 is usual", [];
    }
    "Faults" {
        max_skipped_batches: u64 = 3, Count(0, MANY), "batches",
            "number of batches with a loss or gradient that is not finite that are skipped before \
             the run ends", [];
        spikes: Spikes = "off", Choice(&["off", "clip", "skip"]), "",
            "what to do with a gradient norm above spike_factor times the median of the last 100",
            [];
        spike_factor: f64 = 10.0, Above(1.0, 1e6), "times the median",
            "threshold of a spike", [];
        patience: u64 = 0, Count(0, MANY), "evaluations",
            "evaluations without a new best after which the run ends early; 0: never",
            ["early_stopping_patience", "early_stopping"];
    }
    "Logging and saving" {
        log_interval: u64 = 10, Count(1, MANY), "optimizer steps",
            "between two rows of metrics.jsonl", ["logging_steps"];
        eval_interval: u64 = auto, Count(1, MANY), "optimizer steps",
            "between two evaluations on the validation split; each may save a best checkpoint",
            ["eval_steps", "eval_every"];
        eval_tokens: u64 = auto, Count(0, MANY), "tokens",
            "maximum validation tokens in an evaluation, rounded up to whole windows; 0: all", ["eval_iters"];
        checkpoint_interval: u64 = auto, Count(1, MANY), "optimizer steps",
            "between two saves of the latest checkpoint; every evaluation saves as well",
            ["save_steps", "save_interval", "checkpoint_every"];
        keep_checkpoints: u64 = 1, Count(1, MANY), "checkpoints",
            "number of latest checkpoints to keep, beside the best", ["save_total_limit"];
        tensorboard: bool = false, Flag, "",
            "write TensorBoard event files beside metrics.jsonl", [];
        sample_interval: u64 = auto, Count(0, MANY), "optimizer steps",
            "between two samples of text; 0: none", ["sample_every"];
        sample_tokens: usize = 128, Count(1, 1_000_000), "tokens",
            "length of a sample", [];
        sample_prompts: Vec<String> = [""], Texts, "",
            "prompts of the samples, each with the same random numbers every time; \"\": no prompt",
            ["sample_prompt", "prompts"];
    }
}

/// Every key, in order.
pub fn all() -> impl Iterator<Item = &'static Key> {
    GROUPS.iter().flat_map(|group| group.keys)
}

/// The name before the `=` in `key=value`, whether or not there is such a key.
pub fn assigned_name(assignment: &str) -> &str {
    assignment.split('=').next().unwrap_or_default().trim()
}

/// The key with this name; the error suggests the most similar one.
pub fn find(name: &str) -> Result<&'static Key, ConfigError> {
    let unknown = || ConfigError::UnknownKey { name: name.to_owned(), nearest: nearest(name) };
    all().find(|key| key.name == name).ok_or_else(unknown)
}

/// The key with this name here or in other trainers, ignoring hyphens and capitals.
pub fn named(name: &str) -> Option<&'static Key> {
    let name = normalized(name);
    all().find(|key| key.name == name || key.elsewhere.contains(&name.as_str()))
}

/// The correct name for a mistyped one, or for another trainer's name.
pub fn nearest(name: &str) -> Option<&'static str> {
    named(name).map(|key| key.name).or_else(|| most_similar(&normalized(name), all().map(|key| key.name)))
}

/// The name most similar to what was typed, if any is similar.
pub(super) fn most_similar(typed: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let similarity = |name: &str| strsim::normalized_damerau_levenshtein(typed, name);
    // Below one half, two names share little more than their length.
    let similar = names.map(|name| (similarity(name), name)).filter(|(similarity, _)| *similarity >= 0.5);
    similar.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

fn normalized(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' '], "_")
}

/// The table as plain text for a terminal, with an empty line before each group.
pub fn help() -> String {
    let mut text = String::new();
    for group in GROUPS {
        text += &format!("\n{}\n", group.title);
        for key in group.keys {
            let Key { name, meaning, .. } = key;
            let default = key.default.unwrap_or("auto");
            text += &format!("  {name:<20} {default:<9} {meaning}\n  {:<30} ({})\n", "", key.range());
        }
    }
    text
}
