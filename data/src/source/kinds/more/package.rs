//! A document that is a zip archive of parts: Word's, OpenDocument's, e-books.

use super::xml::{self, Node};
use crate::source::archive::{Archive, Entry};
use crate::source::event::Halt;
use crate::source::start::Start;
use crate::source::{content::Content, encoding, error::Error};
use ember_host::file_error::At;
use std::io::Read;
use std::{cell::Cell, collections::BTreeMap, fs::File};

/// The largest part that is read, which bounds the memory that it takes.
const LARGEST_PART_BYTES: u64 = 64 << 20;

/// A document's parts.
pub struct Package<'a> {
    name: &'a str,
    file: File,
    parts: BTreeMap<String, Entry>,
}

impl<'a> Package<'a> {
    /// Finds the parts.
    ///
    /// # Errors
    /// When the archive is damaged.
    pub fn open(content: &Content<'a>) -> Result<Self, Error> {
        let file = content.seekable()?;
        let again = file.try_clone().at("cannot read", content.name())?;
        let parts = Archive::Zip.list(again, content.name())?;
        Ok(Self { name: content.name(), file, parts: parts.into_iter().collect() })
    }

    /// The bytes of a part; `None` where there is none of this name.
    ///
    /// # Errors
    /// When it is damaged, or larger than is read.
    pub fn bytes(&self, part: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(entry) = self.parts.get(part) else { return Ok(None) };
        let mut bytes = Vec::new();
        let file = self.file.try_clone().at("cannot read", self.name)?;
        let read = entry.open(file).and_then(|reader| reader.take(LARGEST_PART_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| self.damaged(part, error.into()))?;
        if bytes.len() as u64 > LARGEST_PART_BYTES {
            let what = format!("holds more than {} MiB in {part:?}; split it", LARGEST_PART_BYTES >> 20);
            return Err(Error::unusable(self.name, what));
        }
        Ok(Some(bytes))
    }

    /// Hands on what a part of XML holds; whether there is one of this name.
    ///
    /// # Errors
    /// As [`Self::bytes`], and when it is not well formed.
    pub fn each(&self, part: &str, visit: &mut dyn FnMut(Node<'_>)) -> Result<bool, Error> {
        let Some(bytes) = self.bytes(part)? else { return Ok(false) };
        let text = encoding::text_of(&bytes, None, &Cell::new(None));
        let text = text.map_err(|error| self.damaged(part, error.into()))?;
        xml::each(&text, visit).map_err(|error| self.damaged(part, error.into()))?;
        Ok(true)
    }

    /// The text of the first element of this name in a part.
    ///
    /// # Errors
    /// As [`Self::each`].
    pub fn first(&self, part: &str, element: &str) -> Result<Option<String>, Error> {
        let (mut found, mut inside) = (None::<String>, false);
        self.each(part, &mut |node| match node {
            Node::Start(name, _) if name == element && found.is_none() => {
                inside = true;
                found = Some(String::new());
            }
            Node::End(name) if name == element => inside = false,
            Node::Text(text) if inside => found.get_or_insert_default().push_str(text),
            _ => {}
        })?;
        Ok(found)
    }

    /// The error of a part that cannot be read.
    pub fn damaged(&self, part: &str, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        let name = self.name;
        Error::Unreadable { what: format!("{name}: {part:?} in it is damaged; save it again"), source }
    }

    /// The error of a document that lacks a part which makes it what it is.
    pub fn lacking(&self, part: &str) -> Halt {
        Error::unusable(self.name, format!("has no {part:?} in it, so it is damaged; save it again")).into()
    }
}

/// Whether a file begins as an archive with this name among the first in it.
pub fn begins_with_part(start: &Start, part: &[u8]) -> bool {
    start.bytes.starts_with(b"PK\x03\x04") && start.bytes.windows(part.len()).any(|window| window == part)
}
