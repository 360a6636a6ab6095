//! JSON Lines: one JSON object a line, one of its fields the document.

use super::error::Error;
use super::event::{Event, Sink};
use super::utf16;
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Read};

/// The longest line that is read, which bounds the memory it takes.
const LONGEST_LINE_BYTES: u64 = 64 << 20;

/// Hands the documents of JSON Lines to `sink`; empty lines are skipped.
pub fn read<E: From<Error>>(name: &str, reader: &mut dyn Read, field: &str, sink: &mut Sink<'_, E>) -> Result<(), E> {
    let mut reader = BufReader::with_capacity(1 << 20, reader);
    let mut bytes = Vec::new();
    for line in 1u64.. {
        bytes.clear();
        let n = reader
            .by_ref()
            .take(LONGEST_LINE_BYTES + 1)
            .read_until(b'\n', &mut bytes)
            .map_err(|error| utf16::cannot_read(name, format!("line {}", line - 1), error))?;
        if n == 0 {
            break;
        }
        if n as u64 > LONGEST_LINE_BYTES {
            return Err(Error::LongLine { name: name.to_owned(), line, most_bytes: LONGEST_LINE_BYTES }.into());
        }
        let content = bytes.strip_prefix(b"\xef\xbb\xbf").filter(|_| line == 1).unwrap_or(&bytes);
        if content.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        sink(Event::Text(&document(name, line, content, field)?))?;
        sink(Event::EndOfDocument)?;
    }
    Ok(())
}

/// The text in one line of the file `name`.
fn document(name: &str, line: u64, content: &[u8], field: &str) -> Result<String, Error> {
    let name = name.to_owned();
    let mut object: Map<String, Value> = match serde_json::from_slice(content) {
        Ok(object) => object,
        Err(reason) => return Err(Error::NotJson { name, line, reason }),
    };
    match object.get_mut(field).map(Value::take) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Error::FieldIsNoString { name, line, field: field.to_owned() }),
        None => Err(Error::NoField { name, line, field: field.to_owned(), fields: object.keys().cloned().collect() }),
    }
}
