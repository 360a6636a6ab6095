//! UTF-16 text with its byte order mark, turned into UTF-8 while reading.

use super::error::Error;
use std::io::{self, Cursor, Read};

/// How much is read at once.
const BLOCK_BYTES: usize = 1 << 16;

/// The order of the two bytes of a code unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// What the mark at the beginning of a text says; `None` for what is not UTF-16 with its mark.
    pub fn of_content(start: &[u8]) -> Option<Self> {
        match start {
            [0xff, 0xfe, ..] => Some(Self::Little),
            [0xfe, 0xff, ..] => Some(Self::Big),
            _ => None,
        }
    }
}

/// `raw` as it is, or as UTF-8 where it begins with UTF-16's mark, which is dropped.
pub fn as_utf8<'a>(mut raw: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::with_capacity(2);
    raw.by_ref().take(2).read_to_end(&mut start)?;
    Ok(match ByteOrder::of_content(&start) {
        Some(order) => Box::new(Converted { raw, order, offset: 2, bytes: Vec::new(), text: Cursor::default() }),
        None => Box::new(Cursor::new(start).chain(raw)),
    })
}

/// UTF-8 of the UTF-16 that `raw` holds behind its mark.
struct Converted<'a> {
    raw: Box<dyn Read + 'a>,
    order: ByteOrder,
    /// Bytes of the text, mark included, that were converted.
    offset: u64,
    /// Bytes that were read and not yet converted: a part of a character, at most.
    bytes: Vec<u8>,
    /// What was converted last.
    text: Cursor<String>,
}

impl Read for Converted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.text.position() == self.text.get_ref().len() as u64 {
            self.text = Cursor::new(self.convert()?);
        }
        self.text.read(buffer)
    }
}

impl Converted<'_> {
    /// Converts the next block; an empty one is the end.
    fn convert(&mut self) -> io::Result<String> {
        let unit = |pair: &[u8]| match self.order {
            ByteOrder::Little => u16::from_le_bytes([pair[0], pair[1]]),
            ByteOrder::Big => u16::from_be_bytes([pair[0], pair[1]]),
        };
        let mut text = String::new();
        loop {
            let n = self.raw.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut self.bytes)?;
            let last = n < BLOCK_BYTES;
            let mut pairs = self.bytes.chunks_exact(2);
            // A character may go on in the next block.
            if !last && pairs.clone().next_back().is_some_and(|pair| (0xd800..0xdc00).contains(&unit(pair))) {
                pairs.next_back();
            }
            let used = 2 * pairs.len();
            for character in char::decode_utf16(pairs.map(unit)) {
                let character = character.map_err(|_| broken(self.offset))?;
                self.offset += 2 * character.len_utf16() as u64;
                text.push(character);
            }
            self.bytes.drain(..used);
            match last {
                true if !self.bytes.is_empty() => return Err(broken(self.offset)),
                false if text.is_empty() => {}
                _ => return Ok(text),
            }
        }
    }
}

/// Not UTF-16, from this byte on.
#[derive(Debug, thiserror::Error)]
#[error("byte {0} begins half a character")]
struct Broken(u64);

fn broken(at: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Broken(at))
}

/// Why the text called `name` could not be read on; `place` says how far it was.
pub fn cannot_read(name: &str, place: &str, error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Broken>()) {
        Some(broken) => {
            let what = format!("is not UTF-16 text, as its byte order mark says: {broken}; save it again as UTF-8");
            Error::unusable(name, what)
        }
        None => {
            let what = format!("{name} after {place}; if it is compressed, it is broken: compress it again");
            Error::Unreadable { what, source: error.into() }
        }
    }
}
