//! UTF-16 text with its byte order mark, turned into UTF-8 while reading.

use super::error::Error;
use std::collections::VecDeque;
use std::io::{self, Read};

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
        Some(order) => Box::new(Converted {
            raw,
            order,
            offset: 2,
            units: VecDeque::new(),
            odd: None,
            text: String::new(),
            handed_on: 0,
        }),
        None => Box::new(io::Cursor::new(start).chain(raw)),
    })
}

/// UTF-8 of the UTF-16 that `raw` holds behind its mark.
struct Converted<'a> {
    raw: Box<dyn Read + 'a>,
    order: ByteOrder,
    /// Bytes of the text, mark included, before `units`.
    offset: u64,
    /// Code units that were read and not yet converted: the first half of a character, at most.
    units: VecDeque<u16>,
    /// The first byte of a code unit.
    odd: Option<u8>,
    /// What was converted last, and how much of it was handed on.
    text: String,
    handed_on: usize,
}

impl Read for Converted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.handed_on == self.text.len() {
            self.convert()?;
        }
        let n = (&self.text.as_bytes()[self.handed_on..]).read(buffer)?;
        self.handed_on += n;
        Ok(n)
    }
}

impl Converted<'_> {
    /// Converts the next block; an empty one is the end.
    fn convert(&mut self) -> io::Result<()> {
        self.text.clear();
        self.handed_on = 0;
        while self.text.is_empty() {
            let mut block = Vec::with_capacity(BLOCK_BYTES + 1);
            block.extend(self.odd.take());
            let n = self.raw.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
            let pairs = block.chunks_exact(2);
            self.odd = pairs.remainder().first().copied();
            let unit = |pair: &[u8]| match self.order {
                ByteOrder::Little => u16::from_le_bytes([pair[0], pair[1]]),
                ByteOrder::Big => u16::from_be_bytes([pair[0], pair[1]]),
            };
            self.units.extend(pairs.map(unit));
            let last = n < BLOCK_BYTES;
            // A character may go on in the next block.
            let waits = !last && self.units.back().is_some_and(|unit| (0xd800..0xdc00).contains(unit));
            let held = if waits { self.units.pop_back() } else { None };
            for character in char::decode_utf16(self.units.drain(..)) {
                let Ok(character) = character else { return Err(broken(self.offset)) };
                self.offset += 2 * character.len_utf16() as u64;
                self.text.push(character);
            }
            self.units.extend(held);
            if last {
                return if self.odd.is_some() { Err(broken(self.offset)) } else { Ok(()) };
            }
        }
        Ok(())
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
pub fn cannot_read(name: &str, place: String, error: io::Error) -> Error {
    let name = name.to_owned();
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(&Broken(at)) => Error::NotUtf16 { name, at },
        None => Error::Broken { name, place, source: error },
    }
}
