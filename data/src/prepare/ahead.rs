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

/// At most this much text is buffered. A file that unpacks to more than the remaining room is read
/// in its turn.
const MAX_BUFFERED_BYTES: usize = 128 << 20;

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
        match event {
            Event::Text(piece) if buffered.fetch_add(piece.len(), Ordering::Relaxed) > MAX_BUFFERED_BYTES => {
                return Err(NotBuffered::TooLong);
            }
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
