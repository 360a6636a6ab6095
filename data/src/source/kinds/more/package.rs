//! Documents that are zip archives of parts: Word's, OpenDocument's, e-books.

use super::xml::{self, Node};
use crate::source::archive::{Archive, Entry};
use crate::source::event::Halt;
use crate::source::start::Start;
use crate::source::{content::Content, encoding, error::Error};
use ember_host::file_error::At;
use memchr::memmem;
use std::io::Read;
use std::{cell::Cell, collections::BTreeMap, fs::File};

/// The largest part that is read, to bound the memory.
const LARGEST_PART_BYTES: u64 = 64 << 20;

/// A document's zip archive and its parts.
pub struct Package<'a> {
    name: &'a str,
    file: File,
    parts: BTreeMap<String, Entry>,
}

impl<'a> Package<'a> {
    /// Opens the archive and lists its parts.
    ///
    /// # Errors
    /// When the archive is damaged.
    pub fn open(content: &Content<'a>) -> Result<Self, Error> {
        let file = content.seekable()?;
        let again = file.try_clone().at("cannot read", content.name())?;
        let parts = Archive::Zip.list(again, content.name())?;
        Ok(Self { name: content.name(), file, parts: parts.into_iter().collect() })
    }

    /// The bytes of a part; `None` if there is none of this name.
    ///
    /// # Errors
    /// When it is damaged or too large.
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

    /// Calls `visit` with each node of an XML part; returns whether there is a part of this name.
    ///
    /// # Errors
    /// As [`Self::bytes`], and when it is not well formed.
    pub fn for_each_node(&self, part: &str, visit: &mut dyn FnMut(Node<'_>)) -> Result<bool, Error> {
        let Some(bytes) = self.bytes(part)? else { return Ok(false) };
        let text = encoding::text_of(&bytes, None, &Cell::new(None));
        let text = text.map_err(|error| self.damaged(part, error.into()))?;
        xml::for_each_node(&text, visit).map_err(|error| self.damaged(part, error.into()))?;
        Ok(true)
    }

    /// The text of the first element of this name in a part.
    ///
    /// # Errors
    /// As [`Self::for_each_node`].
    pub fn first_text(&self, part: &str, element: &str) -> Result<Option<String>, Error> {
        let (mut found, mut inside) = (None::<String>, false);
        self.for_each_node(part, &mut |node| match node {
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

    /// The error for a part that cannot be read.
    pub fn damaged(&self, part: &str, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        let name = self.name;
        Error::Unreadable { what: format!("{name}: {part:?} in it is damaged; save it again"), source }
    }

    /// The error for a document without a necessary part.
    pub fn missing(&self, part: &str) -> Halt {
        Error::unusable(self.name, format!("has no {part:?} in it, so it is damaged; save it again")).into()
    }
}

/// Whether a file begins with an archive whose part `mimetype` has this content.
pub fn has_mimetype(start: &Start, kind: &[u8]) -> bool {
    first_parts(start).any(|(name, content)| name == b"mimetype" && content.starts_with(kind))
}

/// The first parts of an archive that are within the known beginning: the name of each, and the
/// known bytes after its header.
pub fn first_parts(start: &Start) -> impl Iterator<Item = (&[u8], &[u8])> {
    // A local file header (APPNOTE 4.3.7): how it begins, its length, and the offsets of its
    // little-endian fields.
    const HEADER: &[u8] = b"PK\x03\x04";
    const HEADER_BYTES: usize = 30;
    const FLAGS: usize = 6;
    const METHOD: usize = 8;
    const PACKED_BYTES: usize = 18;
    const NAME_BYTES: usize = 26;
    const EXTRA_BYTES: usize = 28;
    // A flag: the sizes come after the content, and are 0 in the header.
    const SIZE_FOLLOWS: usize = 1 << 3;
    // The method of content that is not compressed.
    const STORED: usize = 0;
    let mut rest = &start.bytes[..];
    std::iter::from_fn(move || {
        let header = rest.get(..HEADER_BYTES).filter(|header| header.starts_with(HEADER))?;
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let packed_bytes = number(PACKED_BYTES) | (number(PACKED_BYTES + 2) << 16);
        let after_name = HEADER_BYTES + number(NAME_BYTES);
        let name = rest.get(HEADER_BYTES..after_name)?;
        let content = rest.get(after_name + number(EXTRA_BYTES)..).unwrap_or_default();
        // A stored part of unknown size may be an archive with headers of its own: stop there.
        let has_unknown_size = number(FLAGS) & SIZE_FOLLOWS != 0 && number(METHOD) == STORED;
        let after = content.get(packed_bytes..).filter(|_| !has_unknown_size).unwrap_or_default();
        rest = memmem::find(after, HEADER).map(|at| &after[at..]).unwrap_or_default();
        Some((name, content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of a program that knows the size, and the uncompressed content.
    fn stored(name: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend([content.len() as u32, content.len() as u32].iter().flat_map(|size| size.to_le_bytes()));
        bytes.extend([name.len() as u16, 0].iter().flat_map(|length: &u16| length.to_le_bytes()));
        [&bytes[..], name.as_bytes(), content].concat()
    }

    #[test]
    fn only_the_names_of_an_archives_own_parts_say_what_it_is() {
        let names = |bytes: &[u8]| -> Vec<String> {
            let start = Start { bytes: bytes.to_owned(), name: String::new() };
            first_parts(&start).map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
        };
        let word = [stored("[Content_Types].xml", b"<Types/>"), stored("word/document.xml", b"<p/>")].concat();
        assert_eq!(names(&word), ["[Content_Types].xml", "word/document.xml"]);
        let texts = [stored("foreword/a.txt", b"my word/"), stored("in.docx", &word), stored("b.txt", b"b")].concat();
        assert_eq!(names(&texts), ["foreword/a.txt", "in.docx", "b.txt"]);
        assert_eq!(names(&texts[..100]), ["foreword/a.txt", "in.docx"], "what is cut off is not known");
        assert!(names(b"PK\x03\x04").is_empty() && names(b"PK\x05\x06").is_empty());
    }
}
