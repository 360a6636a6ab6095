//! Bounds how much is read for one item of a file that is streamed, such as a message of a chat.

use std::io::{self, Read, Seek, SeekFrom};
use std::{cell::Cell, rc::Rc};

/// How many more bytes may be read for the current item. Clones share the number.
#[derive(Clone)]
pub struct Allowance {
    item_bytes: u64,
    left: Rc<Cell<Option<u64>>>,
}

impl Allowance {
    /// `item_bytes` for each item.
    pub fn new(item_bytes: u64) -> Self {
        Self { item_bytes, left: Rc::new(Cell::new(Some(item_bytes))) }
    }

    /// Begins the next item.
    pub fn renew(&self) {
        self.left.set(Some(self.item_bytes));
    }

    /// Whether an item was longer than allowed.
    pub fn is_exceeded(&self) -> bool {
        self.left.get().is_none()
    }
}

/// A reader that fails once more is read for an item than allowed.
pub struct Allowed<R> {
    reader: R,
    allowance: Allowance,
}

impl<R> Allowed<R> {
    /// Reads from `reader` within the allowance.
    pub fn new(reader: R, allowance: Allowance) -> Self {
        Self { reader, allowance }
    }
}

impl<R: Read> Read for Allowed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        let left = &self.allowance.left;
        left.set(left.get().and_then(|left| left.checked_sub(n as u64)));
        if self.allowance.is_exceeded() { Err(io::Error::other("a part of it is too long")) } else { Ok(n) }
    }
}

impl<R: Seek> Seek for Allowed<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.reader.seek(to)
    }
}
