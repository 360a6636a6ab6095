//! gzip and zstd, undone while reading.

use super::error::Error;
use ember_host::file_error::At;
use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};

const BUFFER_BYTES: usize = 1 << 18;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// What the first bytes of a file say (RFC 1952 and RFC 8878).
    pub fn of_content(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    /// What a file's name says, and the name without that.
    pub fn of_name(name: &str) -> (Self, &str) {
        let endings = [(".gz", Self::Gzip), (".zst", Self::Zstd), (".zstd", Self::Zstd)];
        let found = endings.into_iter().find_map(|(ending, kind)| Some((kind, name.strip_suffix(ending)?)));
        found.unwrap_or((Self::None, name))
    }
}

/// The content of a file, decompressed as it is read; broken compression shows as an error of the
/// reader.
pub fn reader<'a>(mut raw: impl Read + 'a, name: &str) -> Result<Box<dyn Read + 'a>, Error> {
    let mut start = Vec::with_capacity(4);
    raw.by_ref().take(4).read_to_end(&mut start).at("cannot read", name)?;
    let found = Compression::of_content(&start);
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(start).chain(raw));
    Ok(match (found, Compression::of_name(name).0) {
        (Compression::Gzip, _) => Box::new(Members { member: Some(GzDecoder::new(whole)) }),
        (Compression::Zstd, _) => Box::new(zstd::Decoder::with_buffer(whole).at("cannot read", name)?),
        (Compression::None, Compression::None) => Box::new(whole),
        (Compression::None, _) => {
            let what = "is named as a compressed file, but its content is neither gzip nor zstd; rename it or compress it again";
            return Err(Error::unusable(name, what));
        }
    })
}

/// The members of a gzip file, one after another, up to its end or to the zeros that fill it up:
/// tapes and archives pad with them, and gzip itself passes over them.
struct Members<R> {
    /// `None` behind the last.
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

/// Whether something else comes behind the zeros that come next.
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

/// A file that can be read at any place: itself, or a temporary file with its decompressed content.
pub fn seekable(mut raw: File, name: &str) -> Result<File, Error> {
    const DOING: &str = "cannot decompress";
    let mut start = [0u8; 4];
    let n = raw.read(&mut start).at(DOING, name)?;
    raw.seek(SeekFrom::Start(0)).at(DOING, name)?;
    if Compression::of_content(&start[..n]) == Compression::None {
        return Ok(raw);
    }
    let mut whole = tempfile::tempfile().at(DOING, name)?;
    io::copy(&mut reader(raw, name)?, &mut whole).at(DOING, name)?;
    Ok(whole)
}
