//! The user's options for reading text.

use super::{clean::Clean, error::Error};
use encoding_rs::Encoding;

/// The user's options for reading text.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The field of JSON Lines, and the column of Parquet and CSV, that holds the text.
    pub field: String,
    /// The encoding of text without a byte order mark; `None`: UTF-8 if the text looks like it,
    /// else a guess.
    pub encoding: Option<&'static Encoding>,
    /// How much is cleaned.
    pub clean: Clean,
}

impl ReadOptions {
    /// The encoding of a name (`utf-8`, `windows-1252`, `shift_jis`, ...); `None` for an empty one.
    ///
    /// # Errors
    /// When no encoding has this name.
    pub fn encoding_of(name: &str) -> Result<Option<&'static Encoding>, Error> {
        let unknown = || Error::UnknownEncoding(name.to_owned());
        (!name.is_empty()).then(|| Encoding::for_label(name.as_bytes()).ok_or_else(unknown)).transpose()
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { field: "text".to_owned(), encoding: None, clean: Clean::Auto }
    }
}
