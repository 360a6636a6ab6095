//! What a reader hands on, and how it is ended early.

use super::error::Error;
use serde::{Deserialize, Serialize};

/// What a reader hands on, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// What the document is called, where its file says: a heading, a subject. At most once, before
    /// its text.
    Title(&'a str),
    /// When the document was written, where its file says. At most once, before its text.
    Dated(Dated),
    /// The next piece of the document.
    Text(&'a str),
    /// The document is complete; what follows belongs to the next.
    EndOfDocument,
}

/// When a document was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dated {
    /// At a time, in seconds since 1970 (UTC).
    At(i64),
    /// From its beginning to its end, as a chat goes on.
    Throughout,
}

/// Who receives events; an error of its own ends the reading.
pub type Sink<'a, E> = dyn FnMut(Event<'_>) -> Result<(), E> + 'a;

/// Who receives what a reader hands on.
pub type Documents<'a> = Sink<'a, Halt>;

/// Why a reader ends early.
#[derive(Debug)]
pub enum Halt {
    /// The file cannot be read on.
    Unreadable(Error),
    /// Who receives the documents wants no more.
    Enough,
}

impl<E: Into<Error>> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Unreadable(error.into())
    }
}
