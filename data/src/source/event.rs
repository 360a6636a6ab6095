//! The events that a reader emits, and why it may stop early.

use super::error::Error;
use serde::{Deserialize, Serialize};

/// An event that a reader emits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The document's title, if the file has one: a heading, a subject. At most once, before the
    /// text.
    Title(&'a str),
    /// When the document was written, if the file says so. At most once, before the text.
    Dated(Dated),
    /// The next piece of the document's text.
    Text(&'a str),
    /// The document is complete; the next event belongs to the next document.
    EndOfDocument,
}

/// When a document was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dated {
    /// At a time, in seconds since 1970 (UTC).
    At(i64),
    /// Over a period, from its beginning to its end, as a chat.
    Throughout,
}

/// Callback that receives events; an error from it stops the reader.
pub type Sink<'a, E> = dyn FnMut(Event<'_>) -> Result<(), E> + 'a;

/// Callback that receives a reader's events.
pub type EventSink<'a> = Sink<'a, Halt>;

/// Why a reader stops early.
#[derive(Debug)]
pub enum Halt {
    /// The file cannot be read any further.
    Unreadable(Error),
    /// The sink returned an error, which [`read`](super::read) passes on.
    Stopped,
}

impl<E: Into<Error>> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Unreadable(error.into())
    }
}
