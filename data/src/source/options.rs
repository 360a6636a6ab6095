//! What the user wants of a reading.

use super::{clean::Clean, error::Error};
use encoding_rs::Encoding;

/// What the user wants of a reading.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The field of JSON Lines, and the column of Parquet and CSV, that holds the text.
    pub field: String,
    /// The encoding of text without a byte order mark; `None`: UTF-8 where it is that, else what it
    /// looks like.
    pub encoding: Option<&'static Encoding>,
    /// What is cleaned.
    pub clean: Clean,
}

impl ReadOptions {
    /// The encoding that is called so (`utf-8`, `windows-1252`, `shift_jis`, ...); nothing is none.
    ///
    /// # Errors
    /// When none is.
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
