//! The one table of configuration keys: name, unit, range, default and meaning of each.
//!
//! Everything that talks about keys reads this table: the checks, the help, the comments of a saved `config.toml`
//! and the nearest right name of a mistyped one. It is not the configuration itself (`TrainConfig`).

use toml::Value;

use crate::error::ConfigError;

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number from the first to the second, both included.
    Count(u64, u64),
    /// A finite number from the first to the second, both included.
    Real(f64, f64),
    /// A finite number above the first, at most the second.
    Above(f64, f64),
    /// A finite number from the first, below the second.
    Below(f64, f64),
    /// A text.
    Text {
        /// Whether "" is a value.
        may_be_empty: bool,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// true or false.
    Flag,
    /// A list of paths.
    Paths,
    /// A list of texts.
    Texts,
}

/// What a key is when nobody sets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preset {
    /// The program chooses from the text and the device (see `resolve`), and says why.
    Auto,
    /// This value, as TOML writes it.
    Toml(&'static str),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name, in the configuration file and in `--set name=value`.
    pub name: &'static str,
    /// Values allowed.
    pub kind: Kind,
    /// What one of it is; empty where the value has no unit.
    pub unit: &'static str,
    /// The value of a key left out.
    pub default: Preset,
    /// What it does, in one sentence.
    pub meaning: &'static str,
    /// What other trainers call it; only used to suggest the right name.
    pub elsewhere: &'static [&'static str],
}

/// Rows under one heading.
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// Its keys, in the order in which they are written.
    pub keys: &'static [Key],
}

/// Steps and intervals stop here; far beyond any run, and exact in TOML's 64-bit integers.
const MANY: u64 = 1_000_000_000_000;

const fn key(name: &'static str, kind: Kind, unit: &'static str, default: Preset, meaning: &'static str) -> Key {
    Key { name, kind, unit, default, meaning, elsewhere: &[] }
}

impl Key {
    const fn elsewhere(mut self, names: &'static [&'static str]) -> Self {
        self.elsewhere = names;
        self
    }

    /// The range in words, with the unit.
    pub fn range(&self) -> String {
        let range = match self.kind {
            Kind::Count(low, MANY) => format!("whole number, {low} or more"),
            Kind::Count(low, high) => format!("whole number, {low} to {high}"),
            Kind::Real(low, high) => format!("number, {low} to {high}"),
            Kind::Above(low, high) => format!("number above {low}, at most {high}"),
            Kind::Below(low, high) => format!("number from {low}, below {high}"),
            Kind::Text { may_be_empty: true } => "text".into(),
            Kind::Text { may_be_empty: false } => "text, not empty".into(),
            Kind::Choice(words) => words.join(", "),
            Kind::Flag => "true or false".into(),
            Kind::Paths => "list of paths".into(),
            Kind::Texts => "list of texts".into(),
        };
        if self.unit.is_empty() { range } else { format!("{range}; {}", self.unit) }
    }

    /// Checks one value against the range; the error names key, value and range.
    pub fn check(&self, value: &Value) -> Result<(), ConfigError> {
        if self.default == Preset::Auto && value.as_str() == Some("auto") {
            return Ok(());
        }
        let real = match value {
            Value::Integer(whole) => Some(*whole as f64),
            Value::Float(real) if real.is_finite() => Some(*real),
            _ => None,
        };
        let whole = value.as_integer().and_then(|whole| u64::try_from(whole).ok());
        let fits = match self.kind {
            Kind::Count(low, high) => whole.is_some_and(|n| (low..=high).contains(&n)),
            Kind::Real(low, high) => real.is_some_and(|x| (low..=high).contains(&x)),
            Kind::Above(low, high) => real.is_some_and(|x| low < x && x <= high),
            Kind::Below(low, high) => real.is_some_and(|x| low <= x && x < high),
            Kind::Text { may_be_empty } => value.as_str().is_some_and(|text| may_be_empty || !text.is_empty()),
            Kind::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Kind::Flag => value.is_bool(),
            Kind::Texts => value.as_array().is_some_and(|texts| texts.iter().all(Value::is_str)),
            Kind::Paths => value
                .as_array()
                .is_some_and(|paths| paths.iter().all(|path| path.as_str().is_some_and(|path| !path.is_empty()))),
        };
        if fits {
            return Ok(());
        }
        let or_auto = if self.default == Preset::Auto { ", or \"auto\"" } else { "" };
        let takes = self.range() + or_auto;
        Err(ConfigError::NotAllowed { name: self.name, value: value.to_string(), takes })
    }
}

/// The table, in the order of a written file.
pub const GROUPS: &[Group] = &[
    Group {
        title: "Data",
        keys: &[
            key(
                "text",
                Kind::Paths,
                "",
                Preset::Toml("[]"),
                "files and folders to learn from; empty: the built-in stories",
            )
            .elsewhere(&["dataset", "data", "input"]),
            key(
                "stories",
                Kind::Count(100, 1_000_000_000),
                "stories",
                Preset::Toml("100_000"),
                "how many built-in stories are written when there is no text",
            ),
            key(
                "tokenizer",
                Kind::Text { may_be_empty: false },
                "",
                Preset::Toml("\"auto\""),
                "auto, chars, bytes, bpe:N (N tokens learnt from the text), or a tokenizer.json",
            ),
            key(
                "field",
                Kind::Text { may_be_empty: false },
                "",
                Preset::Toml("\"text\""),
                "the field of JSON Lines and Parquet that holds the text",
            ),
            key(
                "val_fraction",
                Kind::Above(0.0, 0.5),
                "share of the text",
                Preset::Toml("0.1"),
                "held out for validation, never trained on",
            ),
        ],
    },
    Group {
        title: "Model",
        keys: &[
            key(
                "init",
                Kind::Text { may_be_empty: true },
                "",
                Preset::Toml("\"\""),
                "the checkpoint to begin from, with its shape and tokenizer; \"\": random weights",
            )
            .elsewhere(&["init_from", "pretrained", "finetune"]),
            key("n_layer", Kind::Count(1, 512), "blocks", Preset::Auto, "depth").elsewhere(&[
                "num_hidden_layers",
                "depth",
                "layers",
            ]),
            key("n_head", Kind::Count(1, 1024), "heads", Preset::Auto, "attention heads of a block; divides n_embd")
                .elsewhere(&["num_attention_heads", "heads"]),
            key("n_embd", Kind::Count(1, 65_536), "channels", Preset::Auto, "width").elsewhere(&[
                "hidden_size",
                "d_model",
                "dim",
                "width",
            ]),
            key(
                "context_length",
                Kind::Count(1, 1_048_576),
                "tokens",
                Preset::Auto,
                "the longest window the model sees",
            )
            .elsewhere(&[
                "block_size",
                "n_positions",
                "n_ctx",
                "seq_len",
                "sequence_length",
                "max_seq_len",
            ]),
            key(
                "dropout",
                Kind::Below(0.0, 1.0),
                "probability",
                Preset::Auto,
                "activations zeroed while training; helps when the text is read many times",
            ),
            key(
                "architecture",
                Kind::Choice(&["gpt2", "llama", "qwen3"]),
                "",
                Preset::Toml("\"gpt2\""),
                "what the keys below are where they are not set: GPT-2's parts, Llama's, or Llama's with QK-norm",
            )
            .elsewhere(&["model_type"]),
            key("positions", Kind::Choice(&["learned", "rotary"]), "", Preset::Auto, "how places are told apart"),
            key(
                "rope_theta",
                Kind::Above(1.0, 1e12),
                "",
                Preset::Toml("10_000.0"),
                "base of the rotary angles; larger for long contexts",
            )
            .elsewhere(&["rope_base"]),
            key(
                "norm",
                Kind::Choice(&["layernorm", "rmsnorm"]),
                "",
                Preset::Auto,
                "what stands before each branch and the head",
            ),
            key("mlp", Kind::Choice(&["gelu", "swiglu"]), "", Preset::Auto, "what stands inside the MLP")
                .elsewhere(&["activation", "hidden_act", "activation_function"]),
            key(
                "n_inner",
                Kind::Count(1, 1_048_576),
                "channels",
                Preset::Auto,
                "width of the MLP's hidden layer: 4 n_embd with gelu, about 8/3 n_embd with swiglu",
            )
            .elsewhere(&["intermediate_size", "ffn_dim"]),
            key(
                "n_kv_head",
                Kind::Count(1, 1024),
                "heads",
                Preset::Auto,
                "heads of keys and values, each serving n_head / n_kv_head heads of queries; divides n_head",
            )
            .elsewhere(&["num_key_value_heads", "n_kv_heads"]),
            key("qk_norm", Kind::Flag, "", Preset::Auto, "bring every head's queries and keys to unit size"),
            key("bias", Kind::Flag, "", Preset::Auto, "let linear layers and LayerNorms add a bias"),
            key("tied_head", Kind::Flag, "", Preset::Auto, "use the token embedding as the head too")
                .elsewhere(&["tie_word_embeddings", "tie_embeddings"]),
        ],
    },
    Group {
        title: "Training",
        keys: &[
            key(
                "seed",
                Kind::Count(0, i64::MAX as u64),
                "",
                Preset::Toml("1337"),
                "the only source of chance: weights, data order, dropout, samples",
            ),
            key("max_steps", Kind::Count(1, MANY), "optimizer steps", Preset::Auto, "length of the run").elsewhere(&[
                "max_iters",
                "steps",
                "iterations",
                "num_steps",
            ]),
            key(
                "batch_size",
                Kind::Count(1, 1_048_576),
                "windows",
                Preset::Auto,
                "windows of context_length tokens; grad_accum_steps batches make an optimizer step",
            )
            .elsewhere(&["per_device_train_batch_size"]),
            key(
                "grad_accum_steps",
                Kind::Count(1, 1_048_576),
                "passes",
                Preset::Toml("1"),
                "batches whose gradients are averaged into one step",
            )
            .elsewhere(&["gradient_accumulation_steps", "accumulate"]),
            key(
                "micro_batch",
                Kind::Count(1, 1_048_576),
                "windows",
                Preset::Auto,
                "windows in one pass, as many as the memory holds; divides batch_size times grad_accum_steps, which it never changes",
            ),
            key(
                "precision",
                Kind::Choice(&["f32", "bf16", "f16"]),
                "",
                Preset::Auto,
                "what matrix products are computed in, bf16 on a GPU that can; weights, moments, norms, softmax and loss are float32 always",
            )
            .elsewhere(&["dtype"]),
            key(
                "activation_checkpointing",
                Kind::Flag,
                "",
                Preset::Toml("false"),
                "keep only each block's input and compute the rest again in the backward: less memory, a third more time",
            )
            .elsewhere(&["gradient_checkpointing", "checkpoint_activations"]),
            key(
                "optimizer",
                Kind::Choice(&["adamw", "muon"]),
                "",
                Preset::Toml("\"adamw\""),
                "muon: orthogonal steps for the blocks' matrices, AdamW for the rest",
            ),
            key("learning_rate", Kind::Above(0.0, 1.0), "", Preset::Auto, "the peak, reached after warm-up")
                .elsewhere(&["lr", "max_lr"]),
            key("min_learning_rate", Kind::Real(0.0, 1.0), "", Preset::Auto, "where the schedule ends")
                .elsewhere(&["min_lr", "lr_min"]),
            key(
                "warmup_steps",
                Kind::Count(0, MANY),
                "optimizer steps",
                Preset::Auto,
                "linear climb from 0 to learning_rate",
            )
            .elsewhere(&["warmup_iters", "warmup"]),
            key(
                "lr_decay_steps",
                Kind::Count(1, MANY),
                "optimizer steps",
                Preset::Auto,
                "the step at which cosine and wsd reach min_learning_rate",
            )
            .elsewhere(&["lr_decay_iters"]),
            key(
                "schedule",
                Kind::Choice(&["cosine", "wsd", "constant"]),
                "",
                Preset::Toml("\"cosine\""),
                "after warm-up: half a cosine; level, then straight down over the last decay_fraction; or level to the end",
            )
            .elsewhere(&["lr_scheduler_type", "scheduler", "lr_schedule"]),
            key(
                "decay_fraction",
                Kind::Above(0.0, 1.0),
                "share of lr_decay_steps",
                Preset::Toml("0.2"),
                "how long the way down of schedule wsd is",
            ),
            key(
                "muon_learning_rate",
                Kind::Above(0.0, 1.0),
                "",
                Preset::Toml("0.02"),
                "Muon's peak for matrices; it follows the same schedule",
            ),
            key("muon_momentum", Kind::Below(0.0, 1.0), "", Preset::Toml("0.95"), "Muon's memory of the gradient"),
            key(
                "weight_decay",
                Kind::Real(0.0, 10.0),
                "",
                Preset::Toml("0.1"),
                "decoupled decay, on matrices only",
            ),
            key("beta1", Kind::Below(0.0, 1.0), "", Preset::Toml("0.9"), "AdamW's memory of the gradient"),
            key(
                "beta2",
                Kind::Below(0.0, 1.0),
                "",
                Preset::Toml("0.99"),
                "AdamW's memory of its square; nearer 1 for small batches",
            ),
            key("epsilon", Kind::Above(0.0, 0.1), "", Preset::Toml("1e-8"), "added to AdamW's denominator")
                .elsewhere(&["eps", "adam_epsilon"]),
            key(
                "grad_clip",
                Kind::Real(0.0, 1e6),
                "global norm",
                Preset::Toml("1.0"),
                "longer gradients are scaled down to this; 0: never",
            )
            .elsewhere(&["max_grad_norm", "clip"]),
            key(
                "z_loss",
                Kind::Real(0.0, 1.0),
                "",
                Preset::Toml("0.0"),
                "adds this times the squared logarithm of the softmax's denominator, which keeps logits small; 1e-4 is usual",
            ),
            key(
                "label_smoothing",
                Kind::Below(0.0, 1.0),
                "probability",
                Preset::Toml("0.0"),
                "share of the target that is spread evenly over all tokens",
            ),
            key(
                "ema_decay",
                Kind::Below(0.0, 1.0),
                "",
                Preset::Toml("0.0"),
                "memory of a moving average of the weights, evaluated and saved beside them; 0: none, 0.999 is usual",
            ),
        ],
    },
    Group {
        title: "Going wrong",
        keys: &[
            key(
                "max_skipped_batches",
                Kind::Count(0, MANY),
                "batches",
                Preset::Toml("3"),
                "batches with a loss or gradient that is not finite that are left out before the run gives up",
            ),
            key(
                "spikes",
                Kind::Choice(&["off", "clip", "skip"]),
                "",
                Preset::Toml("\"off\""),
                "what to do with a gradient spike_factor times as long as the median of the last 100",
            ),
            key("spike_factor", Kind::Above(1.0, 1e6), "times the median", Preset::Toml("10.0"), "what a spike is"),
            key(
                "patience",
                Kind::Count(0, MANY),
                "evaluations",
                Preset::Toml("0"),
                "evaluations without a new best after which the run ends early; 0: never",
            )
            .elsewhere(&["early_stopping_patience", "early_stopping"]),
        ],
    },
    Group {
        title: "Looking and saving",
        keys: &[
            key(
                "log_interval",
                Kind::Count(1, MANY),
                "optimizer steps",
                Preset::Toml("10"),
                "between two rows of metrics.jsonl",
            )
            .elsewhere(&["logging_steps"]),
            key(
                "eval_interval",
                Kind::Count(1, MANY),
                "optimizer steps",
                Preset::Auto,
                "between two evaluations on the validation split; each may save a best checkpoint",
            )
            .elsewhere(&["eval_steps", "eval_every"]),
            key(
                "eval_tokens",
                Kind::Count(0, MANY),
                "tokens",
                Preset::Auto,
                "most validation tokens predicted in one evaluation; 0: all of them",
            )
            .elsewhere(&["eval_iters"]),
            key(
                "checkpoint_interval",
                Kind::Count(1, MANY),
                "optimizer steps",
                Preset::Auto,
                "between two saves of the latest checkpoint; every evaluation saves as well",
            )
            .elsewhere(&["save_steps", "save_interval", "checkpoint_every"]),
            key(
                "keep_checkpoints",
                Kind::Count(1, MANY),
                "checkpoints",
                Preset::Toml("1"),
                "the last so many are kept, and the best",
            )
            .elsewhere(&["save_total_limit"]),
            key(
                "tensorboard",
                Kind::Flag,
                "",
                Preset::Toml("false"),
                "write TensorBoard event files beside metrics.jsonl",
            ),
            key(
                "sample_interval",
                Kind::Count(0, MANY),
                "optimizer steps",
                Preset::Auto,
                "between two samples of text; 0: none",
            )
            .elsewhere(&["sample_every"]),
            key("sample_tokens", Kind::Count(1, 1_000_000), "tokens", Preset::Toml("128"), "length of a sample"),
            key(
                "sample_prompts",
                Kind::Texts,
                "",
                Preset::Toml("[\"\"]"),
                "what samples continue, each with the same noise every time; \"\": a text of its own",
            )
            .elsewhere(&["sample_prompt", "prompts"]),
        ],
    },
];

/// Every key, in order.
pub fn all() -> impl Iterator<Item = &'static Key> {
    GROUPS.iter().flat_map(|group| group.keys)
}

/// The key of this name; the error suggests the nearest right one.
pub fn find(name: &str) -> Result<&'static Key, ConfigError> {
    let unknown = || ConfigError::UnknownKey { name: name.to_owned(), nearest: nearest(name) };
    all().find(|key| key.name == name).ok_or_else(unknown)
}

/// The right name for a mistyped one, or for what other trainers call it.
pub fn nearest(name: &str) -> Option<&'static str> {
    let name = name.trim().to_lowercase().replace(['-', ' '], "_");
    let likeness = |key: &Key| {
        let spelt = strsim::normalized_damerau_levenshtein(&name, key.name);
        if key.elsewhere.contains(&name.as_str()) { 1.0 } else { spelt }
    };
    // Below one half, two names share little more than their length.
    all()
        .map(|key| (likeness(key), key.name))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// The table as plain text for a terminal.
pub fn help() -> String {
    let mut text = String::from(
        "Keys of a configuration file (TOML, one `key = value` a line) and of --set key=value.\n\
         auto: chosen from the text and the device, and the reason printed.\n",
    );
    for group in GROUPS {
        text += &format!("\n{}\n", group.title);
        for key in group.keys {
            let default = match key.default {
                Preset::Auto => "auto",
                Preset::Toml(value) => value,
            };
            text += &format!("  {:<20} {:<9} {}\n  {:<30} ({})\n", key.name, default, key.meaning, "", key.range());
        }
    }
    text
}
