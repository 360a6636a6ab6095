//! Errors of tokenizers.

use super::characters::UnknownCharacter;
use ember_host::file_error::FileError;
use std::path::PathBuf;

/// Why a tokenizer cannot be read, trained or saved, or why it fails on a text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages explain the fields
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
    /// A file that is not a tokenizer, or one that fails on a text.
    #[error("{what}")]
    Fails { what: String, source: Box<Error> },
    /// A character outside the alphabet of a character tokenizer.
    #[error(transparent)]
    UnknownCharacter(#[from] UnknownCharacter),
    /// Something that our tokenizers do not support, or an error of the tokenizers library in its
    /// own words.
    #[error("{0}")]
    Unusable(String),
}
