//! Why a run cannot begin from a checkpoint.

use std::path::PathBuf;

use super::cause::Cause;

/// Why a run cannot begin from a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// It cannot be opened.
    #[error("init")]
    Open(#[source] Cause),
    /// The checkpoint in this folder has no tokenizer.
    #[error(
        "{0} has no tokenizer.json (nor vocab.json with merges.txt), so the text cannot become this model's tokens; put the model's \
         own tokenizer there"
    )]
    NoTokenizer(PathBuf),
    /// Its tokenizer is another model's.
    #[error(
        "{folder}: its tokenizer has {tokens} tokens, but its config.json says vocab_size {vocab_size}: the model has no embedding for \
         the others; put the model's own tokenizer there"
    )]
    ForeignTokenizer {
        /// The checkpoint.
        folder: PathBuf,
        /// Tokens of its tokenizer.
        tokens: usize,
        /// Tokens of its model.
        vocab_size: usize,
    },
    /// The text was prepared with another tokenizer.
    #[error("{data} was prepared with {what}")]
    OtherTokenizer {
        /// The prepared folder.
        data: PathBuf,
        /// The checkpoint.
        folder: PathBuf,
        /// Which, and what the checkpoint has.
        what: String,
    },
    /// The text has characters that the tokenizer lacks.
    #[error("the model in {folder} has no token for some of this text")]
    UnknownCharacters {
        /// The checkpoint.
        folder: PathBuf,
        /// Which.
        source: Cause,
    },
    /// The checkpoint that a run began from is gone or damaged.
    #[error("cannot begin from {folder}")]
    Gone {
        /// The checkpoint.
        folder: PathBuf,
        /// What is wrong with it.
        source: Cause,
    },
    /// The checkpoint in this folder, which a run began from, is another now.
    #[error("{0} is no longer what the run began from")]
    Changed(PathBuf),
}
