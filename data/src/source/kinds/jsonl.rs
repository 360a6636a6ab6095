//! JSON Lines: one JSON object a line, one of its fields the document.

use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, error::Error, event::Event};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::{borrow::Cow, fmt};

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

/// So many of a line's fields are named where the wanted one is not among them.
const MOST_NAMES: usize = 32;

impl Reader for JsonLines {
    fn about(&self) -> &About {
        &ABOUT
    }

    /// Empty lines are skipped.
    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let (name, field) = (content.name(), &content.options.field);
        let too_long = format!("the line is longer than {} MiB; split the document", LONGEST_LINE_BYTES >> 20);
        content.each_line(LONGEST_LINE_BYTES, &too_long, &mut |number, line| {
            if line.bytes().all(|byte| byte.is_ascii_whitespace()) {
                return Ok(());
            }
            if let Some(text) = document(&format!("{name}:{number}:"), line, field)? {
                sink(Event::Text(&text))?;
                sink(Event::EndOfDocument)?;
            }
            Ok(())
        })
    }
}

/// The text in one line, which stands at `place`, if there is one: a null is where a document would
/// be.
fn document(place: &str, line: &str, field: &str) -> Result<Option<String>, Error> {
    let mut json = serde_json::Deserializer::from_str(line);
    let read = Fields { wanted: field }.deserialize(&mut json).and_then(|found| json.end().map(|()| found));
    let (found, fields) = read.map_err(|reason| {
        Error::unusable(place, format!("not a line with a JSON object ({reason}); correct or remove it"))
    })?;
    match found {
        Some(Found::Text(text)) => Ok(Some(text)),
        Some(Found::Null) => Ok(None),
        Some(Found::Other) => {
            Err(Error::NoTextField(format!("{place} the field \"{field}\" is not a string; name another")))
        }
        None => Err(Error::NoField { what: format!("{place} no field \"{field}\""), fields }),
    }
}

/// What a field is.
enum Found {
    Text(String),
    Null,
    Other,
}

/// An object whose `wanted` field is read, and of the others some names: what they hold takes no
/// memory.
struct Fields<'a> {
    wanted: &'a str,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = (Option<Found>, Vec<String>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = (Option<Found>, Vec<String>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut found, mut names) = (None, Vec::new());
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            if name == self.wanted {
                found = Some(map.next_value()?);
                continue;
            }
            map.next_value::<IgnoredAny>()?;
            if names.len() < MOST_NAMES {
                names.push(name.into_owned());
            }
        }
        Ok((found, names))
    }
}

impl<'de> Deserialize<'de> for Found {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FoundVisitor)
    }
}

struct FoundVisitor;

impl<'de> Visitor<'de> for FoundVisitor {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Found, E> {
        Ok(Found::Text(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Found, E> {
        Ok(Found::Null)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Found::Other)
    }
}
