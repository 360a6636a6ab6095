//! Plain text, in which `<|endoftext|>` separates documents.

use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, encoding::valid_beginning, event::Event};
use crate::tokenizer::END_OF_TEXT;
use memchr::memmem::Finder;
use std::io::Read;

/// The bytes to read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// The format. Source code and all other text files count as plain text, too.
pub struct Text;

const ABOUT: About =
    About { id: "text", name: "text", endings: &[".txt"], document: "a file; `<|endoftext|>` splits it", without: "" };

impl Reader for Text {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        stream_documents(
            &mut content.text()?,
            &|offset, error| content.cannot_read(&format!("{offset} bytes of text"), error),
            sink,
        )
    }
}

/// Reads a text block by block and emits its documents. `cannot_read` turns the number of bytes
/// read and an I/O error into an error.
pub fn stream_documents(
    reader: &mut dyn Read,
    cannot_read: &dyn Fn(usize, std::io::Error) -> crate::source::Error,
    sink: &mut EventSink<'_>,
) -> Result<(), Halt> {
    let mut block = Vec::new(); // without capacity: a small file takes no more than its size
    let mut offset = 0; // of the block's beginning, in the text
    loop {
        let wanted = (BLOCK_BYTES - block.len()) as u64;
        let n = reader.take(wanted).read_to_end(&mut block).map_err(|error| cannot_read(offset, error))?;
        let last = (n as u64) < wanted;
        // The last character may continue in the next block.
        let text = valid_beginning(&block);
        let done = emit_documents(&text, last, sink)?;
        if last {
            return sink(Event::EndOfDocument);
        }
        offset += done;
        block.drain(..done);
    }
}

/// Emits the documents in `text`, except what may be the beginning of a separator at its end;
/// returns the number of bytes used.
fn emit_documents(text: &str, last: bool, sink: &mut EventSink<'_>) -> Result<usize, Halt> {
    let mut rest = text;
    let end_of_text = Finder::new(END_OF_TEXT);
    while let Some(at) = end_of_text.find(rest.as_bytes()) {
        sink(Event::Text(&rest[..at]))?;
        sink(Event::EndOfDocument)?;
        rest = &rest[at + END_OF_TEXT.len()..];
    }
    let held = if last {
        0
    } else {
        let longest = END_OF_TEXT.len().min(rest.len() + 1);
        (1..longest).rev().find(|&n| rest.as_bytes().ends_with(&END_OF_TEXT.as_bytes()[..n])).unwrap_or(0)
    };
    sink(Event::Text(&rest[..rest.len() - held]))?;
    Ok(text.len() - held)
}
