//! Why a configuration cannot run: each error is one line that names the key.

use std::{io, path::PathBuf};

use ember_kernels::limits::LimitError;

/// Why a configuration cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: cannot read the configuration: {reason}; check the path")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// Something in a file is wrong.
    #[error("{path}")]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<ConfigError>,
    },
    /// The text is not TOML.
    #[error("line {line} is not TOML: {message}; write one `key = value` a line")]
    NotToml {
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A section of this name, as `[name]`.
    #[error("[{0}] is a section; keys are flat here, so write them without sections")]
    Section(String),
    /// An assignment that assigns nothing.
    #[error("{0} has no \"=\"; write key=value, as in max_steps=500")]
    NoEquals(String),
    /// There is no such key.
    #[error("there is no key \"{name}\"{}", nearest.map(|right| format!("; did you mean \"{right}\"?")).unwrap_or_default())]
    UnknownKey {
        /// What was written.
        name: String,
        /// The key that may be meant.
        nearest: Option<&'static str>,
    },
    /// A value out of range.
    #[error("{name} = {value} is not allowed; it takes: {takes}")]
    NotAllowed {
        /// The key.
        name: &'static str,
        /// The value as TOML writes it.
        value: String,
        /// What would be allowed, in words.
        takes: String,
    },
    /// A key that a complete configuration must have.
    #[error("{name} is missing; give it a value ({range})")]
    Missing {
        /// The key.
        name: &'static str,
        /// What it takes, in words.
        range: String,
    },
    /// Values that are no configuration, by what the reader says.
    #[error("the configuration cannot be read: {0}")]
    Unreadable(String),
    /// A configuration that TOML cannot hold, by what the writer says.
    #[error("the configuration cannot be written: {0}")]
    Unwritable(String),
    /// Values that do not go together, or not with the checkpoint that a run begins from, or not
    /// with the step that it has come to: one line that names the keys.
    #[error("{0}")]
    Contradiction(String),
    /// Heads that are too wide for the device's kernels.
    #[error(transparent)]
    WideHeads(LimitError),
    /// A key that decides what is learned is to change in the middle of a run.
    #[error("{assignment}: {name} cannot change in the middle of a run, which would no longer be the same run; these can: {}", can.join(", "))]
    Fixed {
        /// What was written.
        assignment: String,
        /// The key.
        name: String,
        /// Those that can.
        can: &'static [&'static str],
    },
    /// The device cannot multiply in the type that was asked for.
    #[error("precision = {precision}: {device} ({name}) {problem}; use f32, or another device")]
    Precision {
        /// What was asked for.
        precision: &'static str,
        /// The device.
        device: String,
        /// What it calls itself.
        name: String,
        /// Why not.
        problem: String,
    },
    /// A recipe without a text, whose tokenizer does not say how many tokens it has.
    #[error(
        "{recipe}: the number of tokens cannot be told from tokenizer = \"{tokenizer}\"; name a size, as in bpe:SIZE"
    )]
    VocabSize {
        /// The recipe.
        recipe: PathBuf,
        /// Its tokenizer.
        tokenizer: String,
    },
    /// A tokenizer that there is not.
    #[error("tokenizer {tokenizer}: {reason}")]
    Tokenizer {
        /// What was asked for.
        tokenizer: String,
        /// Why not.
        reason: String,
    },
}
