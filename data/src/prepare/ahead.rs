//! Read-ahead: small files are read on all cores, and their events are emitted in file order.

use super::error::Error;
use crate::source::{self, Dated, Event, FileNotes, ReadOptions, Sink, TextFile};
use rayon::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Files larger than this are not read ahead.
const SMALL_BYTES: u64 = 1 << 20;

/// At most this many bytes, of at most this many files, are read ahead at once.
const MAX_AHEAD_BYTES: u64 = 16 << 20;
const MAX_AHEAD_FILES: usize = 4096;

/// At most so many bytes of text and other events are buffered. A file that unpacks to more than
/// the remaining room is read in its turn.
const MAX_BUFFERED_BYTES: usize = 128 << 20;

/// What an event other than text takes, without its title: of empty documents there may be many.
const MARK_BYTES: usize = size_of::<(usize, Mark)>();

/// The buffered events of one file.
pub struct BufferedFile {
    text: String,
    /// The events other than text, each with its byte offset in the text.
    marks: Vec<(usize, Mark)>,
    /// Bytes read from the disk.
    read_bytes: u64,
    end: Result<FileNotes, source::Error>,
}

enum Mark {
    Title(String),
    Dated(Dated),
    EndOfDocument,
}

/// Why a file is not buffered.
enum NotBuffered {
    Unreadable(source::Error),
    TooLong,
}

impl From<source::Error> for NotBuffered {
    fn from(error: source::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Reads the leading small files in parallel; `None` for a file that does not fit the buffer.
pub fn read<'a>(files: impl Iterator<Item = &'a TextFile>, options: &ReadOptions) -> VecDeque<Option<BufferedFile>> {
    let mut bytes = 0;
    let small = files.take(MAX_AHEAD_FILES).take_while(|file| {
        bytes += file.bytes;
        file.bytes <= SMALL_BYTES && bytes <= MAX_AHEAD_BYTES
    });
    let buffered = AtomicUsize::new(0);
    small.collect::<Vec<_>>().into_par_iter().map(|file| buffer(file, options, &buffered)).collect::<Vec<_>>().into()
}

/// Buffers the events of one file; `None` if they do not fit.
fn buffer(file: &TextFile, options: &ReadOptions, buffered: &AtomicUsize) -> Option<BufferedFile> {
    let (mut text, mut marks, read_bytes) = (String::new(), Vec::new(), AtomicU64::new(0));
    let read = source::read::<NotBuffered>(file, options, &read_bytes, &mut |event| {
        let bytes = match event {
            Event::Text(piece) => piece.len(),
            Event::Title(title) => MARK_BYTES + title.len(),
            Event::Dated(_) | Event::EndOfDocument => MARK_BYTES,
        };
        if buffered.fetch_add(bytes, Ordering::Relaxed) > MAX_BUFFERED_BYTES {
            return Err(NotBuffered::TooLong);
        }
        match event {
            Event::Text(piece) => text.push_str(piece),
            Event::Title(title) => marks.push((text.len(), Mark::Title(title.to_owned()))),
            Event::Dated(dated) => marks.push((text.len(), Mark::Dated(dated))),
            Event::EndOfDocument => marks.push((text.len(), Mark::EndOfDocument)),
        }
        Ok(())
    });
    let end = match read {
        Ok(notes) => Ok(notes),
        Err(NotBuffered::Unreadable(error)) => Err(error),
        Err(NotBuffered::TooLong) => return None,
    };
    Some(BufferedFile { text, marks, read_bytes: read_bytes.into_inner(), end })
}

impl BufferedFile {
    /// Replays the buffered events as if the file were read now; emits nothing for a file that
    /// cannot be read to its end.
    pub fn replay(self, read_bytes: &AtomicU64, sink: &mut Sink<'_, Error>) -> Result<FileNotes, Error> {
        read_bytes.fetch_add(self.read_bytes, Ordering::Relaxed);
        let notes = self.end?;
        let mut done = 0;
        for (at, mark) in self.marks {
            if at > done {
                sink(Event::Text(&self.text[done..at]))?;
                done = at;
            }
            match mark {
                Mark::Title(title) => sink(Event::Title(&title))?,
                Mark::Dated(dated) => sink(Event::Dated(dated))?,
                Mark::EndOfDocument => sink(Event::EndOfDocument)?,
            }
        }
        if done < self.text.len() {
            sink(Event::Text(&self.text[done..]))?;
        }
        Ok(notes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::source::Listing;

    #[test]
    fn ends_of_documents_take_room_as_text_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, "{\"text\": \"\"}\n".repeat(100)).unwrap();
        let mut listing = Listing::default();
        listing.add_path(&path).unwrap();
        let is_buffered = |room: usize| {
            let buffered = AtomicUsize::new(MAX_BUFFERED_BYTES - room);
            buffer(&listing.files[0], &ReadOptions::default(), &buffered).is_some()
        };
        assert!(is_buffered(100 * MARK_BYTES) && !is_buffered(50 * MARK_BYTES));
    }
}
