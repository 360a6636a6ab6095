//! JSON Lines: one JSON object a line, one of its fields the document.

use super::{Event, Sink, utf16};
use anyhow::{Result, anyhow, bail, ensure};
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Read};

/// The longest line that is read, which bounds the memory it takes.
const LONGEST_LINE_BYTES: u64 = 64 << 20;

/// Hands the documents of JSON Lines to `sink`; empty lines are skipped.
pub fn read(name: &str, reader: &mut dyn Read, field: &str, sink: &mut Sink<'_>) -> Result<()> {
    let mut reader = BufReader::with_capacity(1 << 20, reader);
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let n = reader
            .by_ref()
            .take(LONGEST_LINE_BYTES + 1)
            .read_until(b'\n', &mut line)
            .map_err(|error| utf16::cannot_read(name, &format!("line {}", number - 1), error))?;
        if n == 0 {
            break;
        }
        ensure!(
            n as u64 <= LONGEST_LINE_BYTES,
            "{name}:{number}: the line is longer than {} MiB; split the document",
            LONGEST_LINE_BYTES >> 20
        );
        let content = line.strip_prefix(b"\xef\xbb\xbf").filter(|_| number == 1).unwrap_or(&line);
        if content.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let object: Map<String, Value> = serde_json::from_slice(content).map_err(|error| {
            anyhow!("{name}:{number}: not a line with a JSON object ({error}); correct or remove it")
        })?;
        match object.get(field) {
            Some(Value::String(text)) => sink(Event::Text(text))?,
            Some(_) => bail!("{name}:{number}: the field \"{field}\" is not a string; name another with --field"),
            None => bail!(
                "{name}:{number}: no field \"{field}\"; name one of these with --field: {}",
                object.keys().cloned().collect::<Vec<_>>().join(", ")
            ),
        }
        sink(Event::EndOfDocument)?;
    }
    Ok(())
}
