//! JSON Lines: one JSON object a line, one of its fields the document.

use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, error::Error, event::Event};
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Read};

/// The kind.
pub struct JsonLines;

const ABOUT: About = About {
    id: "json_lines",
    name: "JSON Lines",
    endings: &[".jsonl", ".ndjson"],
    document: "a line, by one field",
    without: "the other fields; a null is no document",
};

/// The longest line that is read, which bounds the memory it takes.
const LONGEST_LINE_BYTES: u64 = 64 << 20;

impl Reader for JsonLines {
    fn about(&self) -> &About {
        &ABOUT
    }

    /// Empty lines are skipped.
    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let (name, field) = (content.name(), &content.options.field);
        let mut reader = BufReader::with_capacity(1 << 20, content.text()?);
        let mut bytes = Vec::new();
        for line in 1u64.. {
            bytes.clear();
            let read = reader.by_ref().take(LONGEST_LINE_BYTES + 1).read_until(b'\n', &mut bytes);
            let n = read.map_err(|error| content.cannot_read(&format!("line {}", line - 1), error))?;
            if n == 0 {
                break;
            }
            if n as u64 > LONGEST_LINE_BYTES {
                let what = format!("the line is longer than {} MiB; split the document", LONGEST_LINE_BYTES >> 20);
                return Err(Error::unusable(format!("{name}:{line}:"), what).into());
            }
            if bytes.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if let Some(text) = document(&format!("{name}:{line}:"), &bytes, field)? {
                sink(Event::Text(&text))?;
                sink(Event::EndOfDocument)?;
            }
        }
        Ok(())
    }
}

/// The text in one line, which stands at `place`, if there is one: a null is where a document would
/// be.
fn document(place: &str, content: &[u8], field: &str) -> Result<Option<String>, Error> {
    let mut object: Map<String, Value> = serde_json::from_slice(content).map_err(|reason| {
        Error::unusable(place, format!("not a line with a JSON object ({reason}); correct or remove it"))
    })?;
    match object.get_mut(field).map(Value::take) {
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Null) => Ok(None),
        Some(_) => Err(Error::NoTextField(format!("{place} the field \"{field}\" is not a string; name another"))),
        None => {
            let fields = object.keys().cloned().collect();
            Err(Error::NoField { what: format!("{place} no field \"{field}\""), fields })
        }
    }
}
