//! JSON Lines: one JSON object a line, one of its fields the document.

use super::{error::Error, event::Event, event::Sink, utf16};
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
        let read = reader.by_ref().take(LONGEST_LINE_BYTES + 1).read_until(b'\n', &mut bytes);
        let n = read.map_err(|error| utf16::cannot_read(name, &format!("line {}", line - 1), error))?;
        if n == 0 {
            break;
        }
        if n as u64 > LONGEST_LINE_BYTES {
            let what = format!("the line is longer than {} MiB; split the document", LONGEST_LINE_BYTES >> 20);
            return Err(Error::unusable(format!("{name}:{line}:"), what).into());
        }
        let content = bytes.strip_prefix(b"\xef\xbb\xbf").filter(|_| line == 1).unwrap_or(&bytes);
        if content.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        sink(Event::Text(&document(&format!("{name}:{line}:"), content, field)?))?;
        sink(Event::EndOfDocument)?;
    }
    Ok(())
}

/// The text in one line, which stands at `place`.
fn document(place: &str, content: &[u8], field: &str) -> Result<String, Error> {
    let mut object: Map<String, Value> = serde_json::from_slice(content).map_err(|reason| {
        Error::unusable(place, format!("not a line with a JSON object ({reason}); correct or remove it"))
    })?;
    match object.get_mut(field).map(Value::take) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Error::NoTextField(format!("{place} the field \"{field}\" is not a string; name another"))),
        None => {
            let fields = object.keys().cloned().collect();
            Err(Error::NoField { what: format!("{place} no field \"{field}\""), fields })
        }
    }
}
