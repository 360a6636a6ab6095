//! Why a tokenizer cannot be had, or fails.

use super::UnknownCharacter;
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
        "{folder} has no tokenizer.json (nor vocab.json with merges.txt), so text cannot become tokens; put the model's tokenizer \
         there"
    )]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
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

/// What a [`TokenizerChoice`](super::TokenizerChoice) cannot be read from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// Byte pair encoding without a size.
    #[error("tokenizer \"bpe\" lacks the size of its vocabulary; write bpe:8192, for example")]
    NoSize,
    /// A size that is no number.
    #[error("tokenizer \"bpe:{size}\": \"{size}\" is not a number; write bpe:8192, for example")]
    NotANumber {
        /// What was written.
        size: String,
    },
    /// A vocabulary without room for a merge.
    #[error(
        "tokenizer \"bpe:{size}\": a vocabulary of bytes and <|endoftext|> has {} tokens already; give at least that many, or \
         \"bytes\"",
        super::MIN_BPE_VOCAB_SIZE
    )]
    TooSmall {
        /// What was written.
        size: String,
    },
    /// A vocabulary that no model has.
    #[error("tokenizer \"bpe:{size}\": more than {} tokens; give fewer", super::choice::MAX_BPE_VOCAB_SIZE)]
    TooLarge {
        /// What was written.
        size: String,
    },
    /// Neither a kind of tokenizer nor a file.
    #[error(
        "tokenizer \"{choice}\" is neither auto, chars, bytes or bpe:N nor an existing tokenizer.json; give one of these"
    )]
    Unknown {
        /// What was written.
        choice: String,
    },
}
