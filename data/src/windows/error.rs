//! Why no windows can be cut from tokens.

use crate::tokens;

/// Why no windows can be cut from tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] tokens::Error),
    /// A window of no position.
    #[error("context_length is 0; give at least 1")]
    NoContext,
    /// Fewer tokens than a window has.
    #[error(
        "the training split has {tokens} tokens, too few for one window of context_length {context_length} and its target; {}",
        advice(tokens.saturating_sub(1))
    )]
    TooFewTokens {
        /// Tokens of the training split.
        tokens: usize,
        /// Positions of a window.
        context_length: usize,
    },
    /// Fewer tokens behind the start of any document than a window has.
    #[error(
        "the training split has no document with a window of context_length {context_length} after its start; {}",
        advice(*longest)
    )]
    NoLongDocument {
        /// Positions of a window.
        context_length: usize,
        /// The most that a window could have.
        longest: usize,
    },
    /// One token or none: nothing to predict.
    #[error("the validation split has {0} tokens, too few to predict one from another; give more text")]
    TooShortToValidate(usize),
    /// Windows are to start where documents do, and the tokenizer has no token for that.
    #[error(
        "windows that start where a document starts need a tokenizer with <|endoftext|>; prepare with another tokenizer or the \
         window rule \"anywhere\""
    )]
    NoEndOfText,
    /// Windows are to start where documents do, and the first does not.
    #[error("the validation split does not begin with <|endoftext|>; prepare the text again")]
    NoOpening,
}

fn advice(longest: usize) -> String {
    match longest {
        0 => "give more text".to_owned(),
        longest => format!("give more text, or a context_length of at most {longest}"),
    }
}
