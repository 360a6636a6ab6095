//! The trait that each file format implements: its description, and how its documents are read.

use super::content::Content;
use super::event::{Event, EventSink, Halt};
use super::start::Start;

/// A file format that documents are read from. Each is one file in `kinds` and one row of the table
/// there.
pub trait Reader: Sync {
    /// The format's description.
    fn about(&self) -> &About;

    /// Whether a file with this beginning is of this format, whatever its name. A format that is
    /// recognised by name only returns `false`.
    fn matches(&self, _start: &Start) -> bool {
        false
    }

    /// Whether the bytes of a file are text: its encoding is then detected, and a file with a zero
    /// byte is rejected.
    fn is_text(&self) -> bool {
        true
    }

    /// Emits the documents of a file to `sink`.
    ///
    /// # Errors
    /// [`Halt::Unreadable`] names the file and the place.
    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt>;
}

/// The description of a file format.
pub struct About {
    /// Its name in a manifest; never changed.
    pub id: &'static str,
    /// Its name for people, put before the word "file".
    pub name: &'static str,
    /// The endings of such files' names, in lower case.
    pub endings: &'static [&'static str],
    /// What counts as one document.
    pub document: &'static str,
    /// What is left out of the text; empty if nothing is.
    pub without: &'static str,
}

/// The text on one line, as in a title: each run of white space becomes a single space.
pub fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The largest piece of text in one event.
const PIECE_BYTES: usize = 1 << 20;

/// Emits a document that is in memory as a whole, with its title unless that is empty.
///
/// # Errors
/// Those of `sink`.
pub fn emit_document(title: Option<&str>, text: &str, sink: &mut EventSink<'_>) -> Result<(), Halt> {
    let title = in_one_line(title.unwrap_or_default());
    if !title.is_empty() {
        sink(Event::Title(&title))?;
    }
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        sink(Event::Text(piece))?;
        rest = later;
    }
    sink(Event::EndOfDocument)
}
