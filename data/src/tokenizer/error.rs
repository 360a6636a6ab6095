//! Why a tokenizer cannot be had, or fails.

use super::characters::UnknownCharacter;
use ember_host::file_error::FileError;
use std::path::PathBuf;

/// Why a tokenizer cannot be read, learnt or saved, or why it fails on a text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A folder without a tokenizer.
    #[error(
        "{0} has no tokenizer.json (nor vocab.json with merges.txt), so text cannot become tokens; put the model's tokenizer \
         there"
    )]
    Missing(PathBuf),
    /// A file that is no tokenizer, or one that no model can have.
    #[error("{path} is not a tokenizer.json that the tokenizers library reads; give another")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// GPT-2's two files that are no tokenizer.
    #[error("cannot read {vocabulary} with {merges}; fetch them again")]
    UnreadablePair {
        /// `vocab.json`.
        vocabulary: PathBuf,
        /// `merges.txt`.
        merges: PathBuf,
        /// What is wrong with them.
        source: Box<Error>,
    },
    /// A tokenizer without a token.
    #[error("the tokenizer has no tokens")]
    NoTokens,
    /// A tokenizer whose ids are so far apart that most rows of a model would be empty.
    #[error(
        "its token ids go up to {largest}, and it has {count} in all: a model needs a row for every id up to the largest; \
         number them from 0"
    )]
    SparseIds {
        /// The largest id.
        largest: usize,
        /// How many tokens there are.
        count: usize,
    },
    /// A tokenizer of characters is to be made of none.
    #[error("a tokenizer of characters needs a text with at least one character; give more text")]
    NoCharacters,
    /// A character that a tokenizer of characters lacks.
    #[error(transparent)]
    UnknownCharacter(#[from] UnknownCharacter),
    /// An id that the tokenizer lacks.
    #[error("token id {id} is not in the tokenizer, which has {vocab_size} ids; give ids below that")]
    UnknownId {
        /// The id.
        id: u32,
        /// Number of token ids.
        vocab_size: usize,
    },
    /// The tokenizer fails on a text.
    #[error("{}", match file {
        Some(file) => format!("the tokenizer {} fails on this text; give another", file.display()),
        None => "the tokenizer fails on this text".to_owned(),
    })]
    Fails {
        /// The file that it was read from.
        file: Option<PathBuf>,
        /// What the library says.
        source: Box<Error>,
    },
    /// The tokenizers library fails, in its own words.
    #[error("{0}")]
    Library(String),
}
