//! Text from where people keep it: files, folders, standard input, JSON Lines, Parquet, compressed
//! or not.
//!
//! Everything streams: a reader hands on pieces of at most a few megabytes, whatever the size of a
//! file.
//!
//! What a document is:
//! - A text file is one document, unless it holds `<|endoftext|>`, which separates documents.
//! - A line of JSON Lines (`.jsonl`, `.ndjson`) and a row of Parquet (`.parquet`) are one document
//!   each, in one field; a `<|endoftext|>` in them is text.
//!
//! Text is kept as it is, Windows line ends included; only a byte order mark at the beginning of a
//! file is dropped, and text whose mark is UTF-16's is converted. gzip and zstd are recognised by
//! what the file holds, and a file that is named for one of them must be it.
//!
//! A file that is named by itself must be usable. In a folder, what is not is left out and said
//! ([`LeftOut`]), and so are the folders that these programs wrote.

mod compression;
mod error;
mod event;
mod jsonl;
pub(crate) mod left_out;
mod listing;
mod parquet;
mod text;
mod utf16;

pub use error::Error;
pub use event::{Event, Sink};
pub use left_out::{LeftOut, LeftOutKind};
pub use listing::{Format, Input, Listing, TextFile};

use ember_host::file_error::At;
use std::{fs::File, io, io::Read, sync::atomic::AtomicU64, sync::atomic::Ordering};

/// Reads a file and hands its documents to `sink`; `read_bytes` grows by the bytes read from the
/// disk.
///
/// # Errors
/// Those of `sink`, and those of the file, which name it and the place: not UTF-8, broken
/// compression, a bad line of JSON, a missing field or column.
pub fn read<E: From<Error>>(
    file: &TextFile,
    field: &str,
    read_bytes: &AtomicU64,
    sink: &mut Sink<'_, E>,
) -> Result<(), E> {
    let open = || File::open(&file.path).at("cannot open", &file.name).map_err(Error::from);
    match file.format {
        Format::Parquet => {
            let content = compression::seekable(open()?, &file.name)?;
            parquet::read(&file.name, content, field, file.bytes, read_bytes, sink)
        }
        Format::Text => text::read(&file.name, &mut utf8(open()?, file, read_bytes)?, sink),
        Format::JsonLines => jsonl::read(&file.name, &mut utf8(open()?, file, read_bytes)?, field, sink),
    }
}

/// The text of a file: decompressed, and as UTF-8 where it is UTF-16 with its mark.
fn utf8<'a>(content: File, file: &TextFile, read_bytes: &'a AtomicU64) -> Result<Box<dyn Read + 'a>, Error> {
    let bytes = compression::reader(Counted { file: content, bytes: read_bytes }, &file.name)?;
    utf16::as_utf8(bytes).map_err(|error| utf16::cannot_read(&file.name, "0 bytes of text", error))
}

/// Whether a file's bytes are its text: it is neither compressed nor UTF-16 nor of another format.
///
/// # Errors
/// When the file cannot be read.
pub fn is_plain(file: &TextFile) -> Result<bool, Error> {
    let start = listing::sniff(&file.path)?;
    let as_it_is = compression::Compression::of_content(&start) == compression::Compression::None
        && utf16::ByteOrder::of_content(&start).is_none();
    Ok(file.format == Format::Text && as_it_is)
}

/// Counts what is read from a file.
struct Counted<'a> {
    file: File,
    bytes: &'a AtomicU64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

#[cfg(test)]
mod tests;
