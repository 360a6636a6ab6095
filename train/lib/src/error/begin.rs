//! Why a run cannot begin: its configuration, its text, its initial checkpoint, the memory.
#![allow(missing_docs)] // the message names each field

use std::{io, path::PathBuf};

use ember_host::file_error::FileError;
use ember_kernels::limits::LimitError;

use crate::units::bytes;

/// An error of a dependency, or of a caller's closure.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: cannot read the configuration: {reason}; check the path")]
    File { path: PathBuf, reason: io::Error },
    /// There is no such file and no shipped recipe of that name.
    #[error("{path}: there is no such file, and no shipped recipe of that name; {advice}")]
    NoRecipe { path: PathBuf, advice: String },
    /// Something in a file is wrong.
    #[error("{path}")]
    InFile { path: PathBuf, source: Box<ConfigError> },
    /// The text is not TOML.
    #[error("line {line} is not valid TOML: {message}; write one `key = value` per line")]
    NotToml { line: usize, message: String },
    /// A section of this name, as `[name]`.
    #[error("[{0}] is a section, but keys are flat here; write them without sections")]
    Section(String),
    /// An assignment that assigns nothing.
    #[error("{0} has no \"=\"; write key=value, as in max_steps=500")]
    NoEquals(String),
    /// There is no such key.
    #[error("there is no key \"{name}\"{}", nearest.map(|right| format!("; did you mean \"{right}\"?")).unwrap_or_default())]
    UnknownKey { name: String, nearest: Option<&'static str> },
    /// A value out of range.
    #[error("{name} = {value} is not allowed; use {takes}")]
    NotAllowed { name: &'static str, value: String, takes: String },
    /// A key that a complete configuration must have.
    #[error("{name} is missing; give it a value ({range})")]
    Missing { name: &'static str, range: String },
    /// A key of a run that has begun is set to `auto`.
    #[error("{name} = auto is not allowed in a run that has started; give it a value ({range})")]
    Open { name: &'static str, range: String },
    /// An empty path, in the key of this name.
    #[error("the name of the {0} is empty; name a file or folder")]
    NoPath(&'static str),
    /// Values that are no configuration; holds the parser's message.
    #[error("the configuration cannot be read: {0}")]
    Unreadable(String),
    /// A configuration that TOML cannot represent; holds the writer's message.
    #[error("the configuration cannot be written: {0}")]
    Unwritable(String),
    /// Values that contradict each other, the initial checkpoint or the run's current step: one
    /// line that names the keys.
    #[error("{0}")]
    Contradiction(String),
    /// The model exceeds the device's limits.
    #[error(transparent)]
    Limits(LimitError),
    /// A key that may not change in the middle of a run.
    #[error("{assignment}: {name} cannot change after a run has started; these can: {}", can.join(", "))]
    Fixed { assignment: String, name: String, can: &'static [&'static str] },
    /// The device does not support matrix products in this precision.
    #[error("precision = {precision}: {device} ({name}) {problem}; use f32, or another device")]
    Precision { precision: String, device: String, name: String, problem: String },
    /// A recipe without a text, whose tokenizer does not define the vocabulary size.
    #[error("{recipe}: tokenizer = \"{tokenizer}\" does not determine the vocabulary size; set one, as in bpe:SIZE")]
    VocabSize { recipe: PathBuf, tokenizer: String },
    /// A tokenizer that does not exist.
    #[error("tokenizer {tokenizer}: {reason}")]
    Tokenizer { tokenizer: String, reason: String },
    /// An unknown encoding.
    #[error(transparent)]
    Encoding(ember_data::source::Error),
}

/// Why the text of a run cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The path does not exist.
    #[error("{0} does not exist; name a run's folder")]
    Missing(PathBuf),
    /// A checkpoint outside a run.
    #[error("{0} is a checkpoint outside a run folder, so its training text is unknown; name a run's folder")]
    NoRun(PathBuf),
    /// A folder whose name is not UTF-8, so that a configuration cannot hold it.
    #[error("the name of {0} is not UTF-8; rename it")]
    NotUtf8(PathBuf),
    /// The text is already tokenised and can no longer be masked.
    #[error("{0} is already prepared, so mask = true has no effect; mask when you prepare it, and leave mask out here")]
    MaskedTooLate(PathBuf),
    /// The run's tokens cannot be read.
    #[error("the text of {run}")]
    OfRun { run: PathBuf, source: Cause },
    /// The text was prepared again, with a tokenizer that is not the model's.
    #[error("{data} was prepared with another tokenizer than the model's; prepare it again with that of {model}")]
    OtherTokens { data: PathBuf, model: PathBuf },
    /// A file or folder cannot be found.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a run cannot begin from a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The checkpoint cannot be opened.
    #[error("init")]
    Open(#[source] Cause),
    /// The checkpoint in this folder has no tokenizer.
    #[error(
        "{0} has no tokenizer.json (nor vocab.json with merges.txt), so the text cannot be tokenized for this model; put \
         the model's own tokenizer there"
    )]
    NoTokenizer(PathBuf),
    /// The checkpoint's tokenizer belongs to another model.
    #[error(
        "{folder}: its tokenizer has {tokens} tokens, but its config.json says vocab_size {vocab_size}: the model has no embedding for \
         the others; put the model's own tokenizer there"
    )]
    ForeignTokenizer { folder: PathBuf, tokens: usize, vocab_size: usize },
    /// The text was prepared with another tokenizer.
    #[error("{data} was prepared with {what}")]
    OtherTokenizer { data: PathBuf, folder: PathBuf, what: String },
    /// The text has characters that the tokenizer lacks.
    #[error("the model in {folder} has no token for some of this text")]
    UnknownCharacters { folder: PathBuf, source: Cause },
    /// The checkpoint that a run began from is gone or damaged.
    #[error("cannot begin from {folder}")]
    Gone { folder: PathBuf, source: Cause },
    /// The checkpoint in this folder has changed since a run began from it.
    #[error("{0} has changed since the run began from it; put the checkpoint back as it was")]
    Changed(PathBuf),
}

/// A run whose smallest pass needs more memory than is available.
#[derive(Clone, Debug, thiserror::Error)]
#[error("training does not fit into memory: with micro_batch = {micro_batch} it needs about {} {moment} ({}), and {why_not}; make \
     n_layer, n_embd, context_length or the vocabulary smaller", bytes(*peak_bytes),
    parts.iter().map(|(part, size)| format!("{part} {}", bytes(*size))).collect::<Vec<_>>().join(", "))]
pub struct DoesNotFit {
    /// Windows in one pass.
    pub micro_batch: usize,
    /// Peak memory in bytes.
    pub peak_bytes: u64,
    /// When the peak occurs, as in "in a step".
    pub moment: &'static str,
    /// The largest size of each part of it, with its name.
    pub parts: Vec<(&'static str, u64)>,
    /// The available memory, in one clause.
    pub why_not: String,
}
