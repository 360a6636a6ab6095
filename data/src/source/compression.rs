//! Streaming decompression of gzip and zstd, with a limit against decompression bombs.

use super::error::Error;
use ember_host::file_error::At;
use flate2::bufread::{DeflateDecoder, GzDecoder};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::{cell::Cell, rc::Rc};

const BUFFER_BYTES: usize = 1 << 16;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Recognised by the first bytes of a file (RFC 1952 and RFC 8878).
    pub fn of_content(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    /// By the extension of a file's name; also the name without that extension.
    pub fn of_name(name: &str) -> (Self, &str) {
        let endings = [(".gz", Self::Gzip), (".zst", Self::Zstd), (".zstd", Self::Zstd)];
        let found = endings.into_iter().find_map(|(ending, kind)| Some((kind, name.strip_suffix(ending)?)));
        found.unwrap_or((Self::None, name))
    }
}

/// The content of a file, decompressed as it is read; broken compression is an error of the
/// returned reader.
pub fn reader<'a>(mut raw: impl Read + 'a, name: &str) -> Result<Box<dyn Read + 'a>, Error> {
    let mut start = Vec::with_capacity(4);
    raw.by_ref().take(4).read_to_end(&mut start).at("cannot read", name)?;
    let found = Compression::of_content(&start);
    let packed = Rc::new(Cell::new(0));
    let counted = Counted { raw: Cursor::new(start).chain(raw), bytes: packed.clone() };
    let whole = BufReader::with_capacity(BUFFER_BYTES, counted);
    let bounded = |content: Box<dyn Read + 'a>| Box::new(Bounded { content, packed, bytes: 0 });
    Ok(match (found, Compression::of_name(name).0) {
        (Compression::Gzip, _) => bounded(Box::new(Members { member: Some(GzDecoder::new(whole)) })),
        (Compression::Zstd, _) => bounded(Box::new(zstd::Decoder::with_buffer(whole).at("cannot read", name)?)),
        (Compression::None, Compression::None) => Box::new(whole),
        (Compression::None, _) => {
            let what = "is named as a compressed file, but its content is neither gzip nor zstd; rename it or compress it again";
            return Err(Error::unusable(name, what));
        }
    })
}

/// No text has a higher compression ratio.
const MAX_RATIO: u64 = 500;

/// Content up to this size is read whatever its ratio: it does no harm.
const HARMLESS_BYTES: u64 = 64 << 20;

/// Whether so high a compression ratio means a bomb, made to fill up memory or a disk.
pub fn is_bomb(packed_bytes: u64, content_bytes: u64) -> bool {
    content_bytes > HARMLESS_BYTES && content_bytes / MAX_RATIO > packed_bytes
}

/// The error for a decompression bomb.
#[derive(Debug, thiserror::Error)]
#[error("unpacks to more than {MAX_RATIO} times its size, as no text does; leave it out")]
pub struct Bomb;

/// Counts the compressed bytes that are read.
struct Counted<R> {
    raw: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.raw.read(buffer)?;
        self.bytes.set(self.bytes.get() + n as u64);
        Ok(n)
    }
}

/// Decompressed content; a read fails once it proves to be a bomb.
struct Bounded<'a> {
    content: Box<dyn Read + 'a>,
    packed: Rc<Cell<u64>>,
    bytes: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.content.read(buffer)?;
        self.bytes += n as u64;
        if is_bomb(self.packed.get(), self.bytes) {
            return Err(io::Error::other(Bomb));
        }
        Ok(n)
    }
}

/// The concatenated members of a gzip file. Zeros after a member are skipped, as gzip does: tapes
/// and archives pad with them.
struct Members<R> {
    /// `None` after the last.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(mut member) = self.member.take() {
            let read = member.read(buffer);
            if !matches!(read, Ok(0)) || buffer.is_empty() {
                self.member = Some(member);
                return read;
            }
            let mut rest = member.into_inner();
            if skip_zeros(&mut rest)? {
                self.member = Some(GzDecoder::new(rest));
            }
        }
        Ok(0)
    }
}

/// Skips zeros; returns whether anything follows them.
fn skip_zeros(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let block = reader.fill_buf()?;
        let zeros = block.iter().take_while(|&&byte| byte == 0).count();
        let (ended, other) = (block.is_empty(), zeros < block.len());
        reader.consume(zeros);
        if ended || other {
            return Ok(other);
        }
    }
}

/// Inflates deflated data (RFC 1951) as it is read; fails once it proves to be a bomb.
pub fn inflated<'a>(raw: impl Read + 'a) -> Box<dyn Read + 'a> {
    let packed = Rc::new(Cell::new(0));
    let counted = Counted { raw, bytes: packed.clone() };
    let content = Box::new(DeflateDecoder::new(BufReader::with_capacity(BUFFER_BYTES, counted)));
    Box::new(Bounded { content, packed, bytes: 0 })
}
