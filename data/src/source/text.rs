//! Plain text, in which `<|endoftext|>` separates documents.

use super::{error::Error, event::Event, event::Sink, utf16};
use crate::tokenizer::END_OF_TEXT;
use std::io::Read;

/// How much is read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// How far into a file its kind is looked for.
pub const SNIFFED_BYTES: usize = 8 << 10;

/// Hands the documents of a text to `sink`.
pub fn read<E: From<Error>>(name: &str, reader: &mut dyn Read, sink: &mut Sink<'_, E>) -> Result<(), E> {
    let mut block = Vec::with_capacity(BLOCK_BYTES + END_OF_TEXT.len());
    let mut offset = 0; // of the block's beginning, in the decompressed file
    loop {
        let wanted = (BLOCK_BYTES - block.len()) as u64;
        let read = reader.take(wanted).read_to_end(&mut block);
        let n = read.map_err(|error| utf16::cannot_read(name, &format!("{offset} bytes of text"), error))?;
        let last = (n as u64) < wanted;
        if offset == 0 {
            check_kind(name, &block)?;
            if block.starts_with(b"\xef\xbb\xbf") {
                block.drain(..3);
                offset += 3;
            }
        }
        let text = match std::str::from_utf8(&block) {
            Ok(text) => text,
            // A character may go on in the next block.
            Err(error) if error.error_len().is_none() && !last => {
                std::str::from_utf8(&block[..error.valid_up_to()]).expect("what is before the error is valid")
            }
            Err(error) => {
                let valid = error.valid_up_to();
                let what = format!(
                    "is not UTF-8 text: byte {} (0x{:02X}) does not belong there; convert it, for example with iconv -f LATIN1 -t \
                     UTF-8",
                    offset + valid,
                    block[valid]
                );
                return Err(Error::unusable(name, what).into());
            }
        };
        let done = hand_on(text, last, sink)?;
        if last {
            return sink(Event::EndOfDocument);
        }
        offset += done;
        block.drain(..done);
    }
}

/// Refuses what is no text from its first bytes.
pub fn check_kind(name: &str, start: &[u8]) -> Result<(), Error> {
    if utf16::ByteOrder::of_content(start).is_some() {
        return Ok(());
    }
    if let Some(at) = start.iter().take(SNIFFED_BYTES).position(|&byte| byte == 0) {
        let what = format!(
            "looks binary (byte {at} is zero); give text, or if it is UTF-16 convert it with iconv -f UTF-16 -t UTF-8"
        );
        return Err(Error::unusable(name, what));
    }
    match start {
        [b'P', b'K', 3, 4, ..] => Err(Error::unusable(name, "is a zip archive; unpack it and give the files in it")),
        [b'%', b'P', b'D', b'F', b'-', ..] => {
            Err(Error::unusable(name, "is a PDF; convert it to text, for example with pdftotext"))
        }
        _ => Ok(()),
    }
}

/// Hands on all documents of `text` but what may be the beginning of a separator; returns how many
/// bytes that was.
fn hand_on<E>(text: &str, last: bool, sink: &mut Sink<'_, E>) -> Result<usize, E> {
    let mut rest = text;
    while let Some(at) = rest.find(END_OF_TEXT) {
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
