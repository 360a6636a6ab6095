//! Small files, read ahead on all cores and handed on in their order.

use super::error::Error;
use crate::source::{self, Dated, Event, FileNotes, ReadOptions, Sink, TextFile};
use rayon::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A file of more bytes than this is read in its turn.
const SMALL_BYTES: u64 = 1 << 20;

/// So much is read at once, of so many files.
const AHEAD_BYTES: u64 = 16 << 20;
const AHEAD_FILES: usize = 4096;

/// So much text is held. A file that unpacks to more than is left is read in its turn as well.
const HELD_BYTES: usize = 128 << 20;

/// What a file was found to hold.
pub struct Ahead {
    text: String,
    /// What happens behind so many bytes of the text.
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

/// Why a file is not held.
enum NotHeld {
    Unreadable(source::Error),
    TooLong,
}

impl From<source::Error> for NotHeld {
    fn from(error: source::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Reads the first of these files that are small; `None` for one that is to be read in its turn.
pub fn read<'a>(files: impl Iterator<Item = &'a TextFile>, options: &ReadOptions) -> VecDeque<Option<Ahead>> {
    let mut bytes = 0;
    let small = files.take(AHEAD_FILES).take_while(|file| {
        bytes += file.bytes;
        file.bytes <= SMALL_BYTES && bytes <= AHEAD_BYTES
    });
    let held_bytes = AtomicUsize::new(0);
    small.collect::<Vec<_>>().into_par_iter().map(|file| hold(file, options, &held_bytes)).collect::<Vec<_>>().into()
}

fn hold(file: &TextFile, options: &ReadOptions, held_bytes: &AtomicUsize) -> Option<Ahead> {
    let (mut text, mut marks, read_bytes) = (String::new(), Vec::new(), AtomicU64::new(0));
    let read = source::read::<NotHeld>(file, options, &read_bytes, &mut |event| {
        match event {
            Event::Text(piece) if held_bytes.fetch_add(piece.len(), Ordering::Relaxed) > HELD_BYTES => {
                return Err(NotHeld::TooLong);
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
        Err(NotHeld::Unreadable(error)) => Err(error),
        Err(NotHeld::TooLong) => return None,
    };
    Some(Ahead { text, marks, read_bytes: read_bytes.into_inner(), end })
}

impl Ahead {
    /// Hands on what was read, as reading the file would; nothing of a file that cannot be read to
    /// its end.
    pub fn hand_on(self, read_bytes: &AtomicU64, sink: &mut Sink<'_, Error>) -> Result<FileNotes, Error> {
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
