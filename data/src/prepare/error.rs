//! Why a text cannot be prepared.

use super::reading::{Source, names_of};
use crate::{numbers::counted, source, tokenizer, tokenizer::UnknownCharacter, tokens};
use ember_host::file_error::FileError;

/// Why a text cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages explain the fields
pub enum Error {
    /// The text cannot be read.
    #[error(transparent)]
    Source(#[from] source::Error),
    /// The tokenizer cannot be loaded or trained, or fails on the text.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// The tokens cannot be written.
    #[error(transparent)]
    Tokens(#[from] tokens::Error),
    /// Another file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The request cannot be met: what is wrong and what to do.
    #[error("{0}")]
    Unusable(String),
    /// The split put all documents on one side.
    #[error(
        "the split put {val} of {documents} documents into validation; give another seed or more different documents"
    )]
    OneSided { val: u64, documents: u64 },
    /// The text as a whole cannot be used: which text, and why.
    #[error("{text}: {error}")]
    Text { text: String, error: Box<Error> },
    /// The tokenizer lacks characters of the text.
    #[error(
        "the tokenizer lacks {} of the text, {all} in total ({examples})",
        counted(different, "different character")
    )]
    UnknownCharacters { different: usize, all: u64, examples: String, source: UnknownCharacter },
    /// The user stopped it ([`Progress::interrupted`](super::Progress::interrupted)).
    #[error("interrupted while preparing the text; run the same command again")]
    Interrupted,
}

impl Error {
    /// [`Self::Unusable`]: what is wrong, and what to do.
    pub(super) fn unusable(what: impl Into<String>) -> Self {
        Self::Unusable(what.into())
    }

    /// [`Self::Text`]: the error of the text that these sources hold.
    pub(super) fn of_text(self, sources: &[Source]) -> Self {
        Self::Text { text: names_of(sources), error: Box::new(self) }
    }

    /// The second pass found another text than the first; `how` is empty or in brackets.
    pub(super) fn changed(how: &str) -> Self {
        Self::unusable(format!("the text changed while it was read{how}; prepare it again once nobody writes to it"))
    }
}
