//! A reader's access to a file: as text, as bytes, or as a file to seek in.

use super::archive::{self, Entry};
use super::clean::Changes;
use super::compression::{self, Compression};
use super::encoding::{self, Guess};
use super::{error::Error, event::Halt, options::ReadOptions};
use ember_host::file_error::At;
use encoding_rs::Encoding;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::{cell::Cell, sync::atomic::AtomicU64, sync::atomic::Ordering};

/// Where a file's bytes are.
#[derive(Clone, Copy)]
pub struct Location<'a> {
    /// Its name in error messages.
    pub name: &'a str,
    /// The file itself, or the archive that contains it.
    pub path: &'a Path,
    /// Its entry in that archive.
    pub entry: Option<Entry>,
    /// Its size on the disk.
    pub bytes: u64,
}

/// A file that is being read, with the findings about it so far.
pub struct Content<'a> {
    file: Location<'a>,
    pub options: &'a ReadOptions,
    /// Bytes read from the disk so far, as shown to the user: of all files, and of this one.
    read_bytes: &'a AtomicU64,
    counted: Cell<u64>,
    guess: Cell<Option<Guess>>,
    changes: Cell<Changes>,
}

impl<'a> Content<'a> {
    pub(super) fn new(file: Location<'a>, options: &'a ReadOptions, read_bytes: &'a AtomicU64) -> Self {
        Self { file, options, read_bytes, counted: Cell::new(0), guess: Cell::new(None), changes: Cell::default() }
    }

    /// The file's name in error messages.
    pub fn name(&self) -> &'a str {
        self.file.name
    }

    /// Its bytes, decompressed as they are read.
    ///
    /// # Errors
    /// When it cannot be opened, or has the name of a compressed file and is not compressed.
    pub fn bytes(&self) -> Result<Box<dyn Read + '_>, Error> {
        compression::reader(
            Counted { raw: archive::open(self.file.path, self.file.entry, self.file.name)?, content: self },
            self.name(),
        )
    }

    /// Its text as UTF-8, without a byte order mark.
    ///
    /// # Errors
    /// As [`Self::bytes`]; later, those of [`Self::cannot_read`].
    pub fn text(&self) -> Result<Box<dyn Read + '_>, Error> {
        let bytes = self.bytes()?;
        let text = encoding::as_utf8(bytes, self.options.encoding, &self.guess);
        text.map_err(|error| self.cannot_read("0 bytes of text", error))
    }

    /// Calls `sink` with each line, including its line end, and its number, from 1. To bound the
    /// memory, a line of more than `most_bytes` is an error with the message `too_long`.
    ///
    /// # Errors
    /// As [`Self::text`], when a line is too long, and those of `sink`.
    pub fn each_line(
        &self,
        most_bytes: u64,
        too_long: &str,
        sink: &mut dyn FnMut(u64, &str) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        let mut reader = BufReader::with_capacity(1 << 20, self.text()?);
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let read = reader.by_ref().take(most_bytes + 1).read_until(b'\n', &mut line);
            let n = read.map_err(|error| self.cannot_read(&format!("line {}", number - 1), error))?;
            if n == 0 {
                break;
            }
            if n as u64 > most_bytes {
                return Err(Error::unusable(format!("{}:{number}:", self.name()), too_long).into());
            }
            sink(number, std::str::from_utf8(&line).expect("the reader checks it"))?;
        }
        Ok(())
    }

    /// Its whole text, of at most `most_bytes`.
    ///
    /// # Errors
    /// As [`Self::text`], and when it is longer.
    pub fn whole_text(&self, most_bytes: u64) -> Result<String, Error> {
        let whole = self.whole_of(self.text()?, most_bytes)?;
        Ok(String::from_utf8(whole).expect("the reader checks it"))
    }

    /// Its whole text, of at most `most_bytes`; `declared` finds the file's declared encoding.
    ///
    /// # Errors
    /// As [`Self::text`], and when it is longer.
    pub fn whole_declared(
        &self,
        most_bytes: u64,
        declared: impl FnOnce(&[u8]) -> Option<&'static Encoding>,
    ) -> Result<String, Error> {
        let bytes = self.whole_bytes(most_bytes)?;
        self.text_of(&bytes, declared(&bytes)).map_err(|error| self.cannot_read("0 bytes of text", error))
    }

    /// Decodes a part of its bytes, for which the file may declare an encoding.
    ///
    /// # Errors
    /// When they are not in the encoding that is set or declared.
    pub fn text_of(&self, bytes: &[u8], declared: Option<&'static Encoding>) -> io::Result<String> {
        encoding::text_of(bytes, self.options.encoding.or(declared), &self.guess)
    }

    /// All of its bytes, at most `most_bytes`.
    ///
    /// # Errors
    /// As [`Self::bytes`], and when there are more.
    pub fn whole_bytes(&self, most_bytes: u64) -> Result<Vec<u8>, Error> {
        self.whole_of(self.bytes()?, most_bytes)
    }

    fn whole_of(&self, reader: Box<dyn Read + '_>, most_bytes: u64) -> Result<Vec<u8>, Error> {
        let mut whole = Vec::new();
        let read = reader.take(most_bytes + 1).read_to_end(&mut whole);
        read.map_err(|error| self.cannot_read(&format!("{} bytes", whole.len()), error))?;
        if whole.len() as u64 > most_bytes {
            let what = format!("is larger than {} MiB, the limit for its kind; split it", most_bytes >> 20);
            return Err(Error::unusable(self.name(), what));
        }
        Ok(whole)
    }

    /// A file to seek in: the file itself, or a temporary copy of its decompressed content.
    ///
    /// # Errors
    /// When it cannot be opened or decompressed.
    pub fn seekable(&self) -> Result<File, Error> {
        const DOING: &str = "cannot decompress";
        if self.file.entry.is_none() {
            let mut raw = File::open(self.file.path).at("cannot open", self.name())?;
            let mut start = [0u8; 4];
            let n = raw.read(&mut start).at(DOING, self.name())?;
            raw.seek(SeekFrom::Start(0)).at(DOING, self.name())?;
            if Compression::of_content(&start[..n]) == Compression::None {
                return Ok(raw);
            }
        }
        let mut whole = tempfile::tempfile().at(DOING, self.name())?;
        io::copy(&mut self.bytes()?, &mut whole).at(DOING, self.name())?;
        whole.seek(SeekFrom::Start(0)).at(DOING, self.name())?;
        Ok(whole)
    }

    /// Reports that `done` of `total` parts of the file have been read, for a format that is not
    /// read from beginning to end.
    pub fn report_progress(&self, done: u64, total: u64) {
        let bytes = u128::from(self.file.bytes) * u128::from(done) / u128::from(total.max(1));
        self.count((bytes as u64).saturating_sub(self.counted.get()));
    }

    /// Counts bytes read from the disk, up to the size of the file: a file that is first
    /// decompressed into a temporary one is read twice.
    fn count(&self, bytes: u64) {
        let news = bytes.min(self.file.bytes.saturating_sub(self.counted.get()));
        self.counted.set(self.counted.get() + news);
        self.read_bytes.fetch_add(news, Ordering::Relaxed);
    }

    /// The error for a failed read; `place` says how far the reader had come.
    pub fn cannot_read(&self, place: &str, error: io::Error) -> Error {
        encoding::cannot_read(self.name(), place, error)
    }

    /// Calls `clean` with the counts of cleaning's changes, which it adds to.
    pub fn with_changes<T>(&self, clean: impl FnOnce(&mut Changes) -> T) -> T {
        let mut changes = self.changes.get();
        let cleaned = clean(&mut changes);
        self.changes.set(changes);
        cleaned
    }

    /// The guessed encoding, if it had to be guessed.
    pub fn guess(&self) -> Option<Guess> {
        self.guess.get()
    }
}

/// Counts the bytes that are read from a file.
struct Counted<'a> {
    raw: Box<dyn Read>,
    content: &'a Content<'a>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.raw.read(buffer)?;
        self.content.count(n as u64);
        Ok(n)
    }
}
