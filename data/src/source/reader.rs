//! What a kind of file is: what is told of it, and how its documents are read.

use super::content::Content;
use super::event::{Documents, Event, Halt};
use super::start::Start;

/// A kind of file that documents are read from. Each is one file of `kinds`, and a row of the table
/// there.
pub trait Reader: Sync {
    /// What is told of the kind.
    fn about(&self) -> &About;

    /// Whether a file that begins so is of this kind, whatever it is called; a kind that is known
    /// by its name alone says no.
    fn begins(&self, _start: &Start) -> bool {
        false
    }

    /// Whether what a file holds is text to be looked into: its encoding is found out, and a file
    /// with a byte of zero in it is refused.
    fn is_text(&self) -> bool {
        true
    }

    /// Hands the documents of a file to `sink`.
    ///
    /// # Errors
    /// [`Halt::Unreadable`] names the file and the place.
    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt>;
}

/// What is told of a kind of file.
pub struct About {
    /// The kind's name in a manifest; never changed.
    pub id: &'static str,
    /// What people call it, before the word "file".
    pub name: &'static str,
    /// How names of such files end, in lower case.
    pub endings: &'static [&'static str],
    /// What is a document there.
    pub document: &'static str,
    /// What of it is no text to learn from; empty where all is.
    pub without: &'static str,
}

/// A text with single spaces in the place of all its white space, as a title is written.
pub fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The most that is handed on at once.
const PIECE_BYTES: usize = 1 << 20;

/// Hands on a document that is held as a whole, and what it is called where that says anything.
///
/// # Errors
/// The sink's.
pub fn hand_on(title: Option<&str>, text: &str, sink: &mut Documents<'_>) -> Result<(), Halt> {
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
