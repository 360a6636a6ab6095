//! Reads text from files, folders and archives of many formats, and from standard input, compressed
//! or not, in any encoding.
//!
//! Everything streams: a reader emits pieces of at most a few megabytes, whatever the size of the
//! file; a line of JSON Lines or a field of a table is one piece, and has a limit. A format that
//! must be read as a whole sets a limit on the size of a file.
//!
//! [`Kind::about`] says for each format what counts as a document and what is left out.
//! [`Kind::all`] is the table of formats, with one reader each. gzip, zstd, zip and tar are
//! recognised by their content; a file with the extension of a compression must be compressed.
//!
//! Plain text is kept as it is, Windows line ends included; only a byte order mark at the beginning
//! of a file is dropped. Text that is not UTF-8 is converted ([`Guess`]).
//!
//! A file that the user names must be usable. In a folder, unusable files are left out and reported
//! ([`LeftOut`]), and so are the folders, pages and recipes that these programs wrote.

// Without the readers some of their helpers are unused.
#![cfg_attr(not(feature = "readers"), allow(dead_code))]

mod allowance;
mod archive;
mod clean;
pub(crate) mod compression;
mod content;
mod encoding;
mod error;
mod event;
mod foreign;
mod guess;
mod kinds;
mod left_out;
mod listing;
mod options;
pub(crate) mod own;
mod piped;
mod reader;
mod start;

pub use clean::{Changes, Clean};
pub use error::{EncodingOrigin, Error};
pub use event::{Dated, Event, Sink};
pub use foreign::Foreign;
pub use guess::Guess;
pub use kinds::Kind;
pub use left_out::{LeftOut, LeftOutKind};
pub use listing::{Input, Listing, TextFile};
pub use options::ReadOptions;
pub use own::RECIPE_HEAD;
pub use reader::About;

use clean::Cleaner;
use content::Content;
use event::Halt;
use std::sync::atomic::AtomicU64;

/// What reading a file has shown about it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FileNotes {
    /// The guessed encoding, if none was declared and the text was not UTF-8.
    pub guess: Option<Guess>,
    /// What cleaning changed.
    pub changes: Changes,
}

/// Reads a file and passes its documents to `sink` as events; adds the bytes read from the disk to
/// `read_bytes`.
///
/// # Errors
/// Those of `sink`, and those of the file, which name it and the place: another encoding, broken
/// compression, a bad line of JSON, a missing field or column.
pub fn read<E: From<Error>>(
    file: &TextFile,
    options: &ReadOptions,
    read_bytes: &AtomicU64,
    sink: &mut Sink<'_, E>,
) -> Result<FileNotes, E> {
    let content = Content::new(file.location(), options, read_bytes);
    let mut sink_error = None;
    let mut cleaner = Cleaner::new(options.clean);
    // A dynamic sink with a fixed error type, so that the readers are compiled once, not per `E`.
    let mut forward = |event: Event<'_>| {
        sink(event).map_err(|error| {
            sink_error = Some(error);
            Halt::Stopped
        })
    };
    let read = file.kind.reader().read(&content, &mut |event| cleaner.event(event, &mut forward));
    match (read, sink_error) {
        (_, Some(error)) => Err(error),
        (Err(Halt::Unreadable(error)), None) => Err(error.into()),
        (Ok(()) | Err(Halt::Stopped), None) => {
            content.report_progress(1, 1);
            let changes = content.with_changes(|changes| {
                *changes += cleaner.changes;
                *changes
            });
            Ok(FileNotes { guess: content.guess(), changes })
        }
    }
}

/// Whether a file is uncompressed plain text in UTF-8, so that its bytes are its text. Only its
/// first bytes are checked.
///
/// # Errors
/// When the file cannot be read.
pub fn is_plain(file: &TextFile) -> Result<bool, Error> {
    let start = listing::sniff(file.path())?;
    let as_it_is = compression::Compression::of_content(&start) == compression::Compression::None;
    Ok(file.kind == Kind::text() && file.entry.is_none() && as_it_is && encoding::is_utf8(&start))
}

#[cfg(all(test, feature = "readers"))]
mod document_tests;
#[cfg(all(test, feature = "readers"))]
mod fixture_tests;
#[cfg(all(test, feature = "readers"))]
mod hostile_tests;
#[cfg(test)]
mod left_out_tests;
#[cfg(test)]
mod tests;
