//! JSON Lines: one JSON object per line; one of its fields is the document.

use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, error::Error, event::Event};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::{borrow::Cow, fmt};

pub struct JsonLines;

const ABOUT: About = About {
    id: "json_lines",
    name: "JSON Lines",
    endings: &[".jsonl", ".ndjson"],
    document: "one field of a line",
    without: "the other fields; lines where the field is null",
};

/// The longest line that is read, which bounds the memory it takes.
const LONGEST_LINE_BYTES: u64 = 64 << 20;

/// The most field names that the error for a missing field lists.
const MAX_NAMES: usize = 32;

impl Reader for JsonLines {
    fn about(&self) -> &About {
        &ABOUT
    }

    /// Empty lines are skipped.
    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let (name, field) = (content.name(), &content.options.field);
        let too_long = format!("the line is longer than {} MiB; split the document", LONGEST_LINE_BYTES >> 20);
        content.each_line(LONGEST_LINE_BYTES, &too_long, &mut |number, line| {
            if line.bytes().all(|byte| byte.is_ascii_whitespace()) {
                return Ok(());
            }
            let place = format!("{name}:{number}:");
            let found = document(&place, line, field).or_else(|error| {
                let (whole, lone) = without_lone_surrogates(line);
                if lone == 0 {
                    return Err(error);
                }
                content.with_changes(|changes| changes.lone_surrogates += lone);
                document(&place, &whole, field)
            });
            if let Some(text) = found? {
                sink(Event::Text(&text))?;
                sink(Event::EndOfDocument)?;
            }
            Ok(())
        })
    }
}

/// The text in a line; `None` if the field is null. `place` is the line's position for errors.
fn document(place: &str, line: &str, field: &str) -> Result<Option<String>, Error> {
    let mut json = serde_json::Deserializer::from_str(line);
    let read = Fields { wanted: field }.deserialize(&mut json).and_then(|found| json.end().map(|()| found));
    let (found, fields) = read.map_err(|reason| {
        Error::unusable(place, format!("not a JSON object ({reason}); correct or remove the line"))
    })?;
    match found {
        Some(FieldValue::Text(text)) => Ok(Some(text)),
        Some(FieldValue::Null) => Ok(None),
        Some(FieldValue::Other) => {
            Err(Error::NoTextField(format!("{place} the field \"{field}\" is not a string; name another")))
        }
        None => Err(Error::NoField { what: format!("{place} no field \"{field}\""), fields }),
    }
}

/// The line with every unpaired surrogate escape replaced by U+FFFD, and their number. Programs
/// that cut a text within a character write such escapes.
fn without_lone_surrogates(line: &str) -> (String, u64) {
    let (mut whole, mut lone, mut rest) = (String::with_capacity(line.len()), 0, line);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let (kept, length) = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(..0xdc00), Some(0xdc00..)) => (&escape[..12], 12),
            (Some(_), _) => {
                lone += 1;
                ("\\ufffd", 6)
            }
            // Skip both characters: after `\\` a second backslash does not begin an escape.
            (None, _) => {
                let length: usize = escape.chars().take(2).map(char::len_utf8).sum();
                (&escape[..length], length)
            }
        };
        whole.push_str(kept);
        rest = &escape[length..];
    }
    (whole + rest, lone)
}

/// The surrogate (half of a character beyond U+FFFF) of a `\u` escape at the start of `text`.
fn surrogate(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok().filter(|unit| (0xd800..0xe000).contains(unit))
}

/// The value of the wanted field.
enum FieldValue {
    Text(String),
    Null,
    Other,
}

/// Deserializes the `wanted` field of an object, and some names of the others, whose values are
/// skipped without allocation.
struct Fields<'a> {
    wanted: &'a str,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = (Option<FieldValue>, Vec<String>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = (Option<FieldValue>, Vec<String>);

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
            if names.len() < MAX_NAMES {
                names.push(name.into_owned());
            }
        }
        Ok((found, names))
    }
}

impl<'de> Deserialize<'de> for FieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldValueVisitor)
    }
}

struct FieldValueVisitor;

impl<'de> Visitor<'de> for FieldValueVisitor {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<FieldValue, E> {
        Ok(FieldValue::Text(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<FieldValue, E> {
        Ok(FieldValue::Null)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FieldValue, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldValue, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Other)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every unpaired surrogate is replaced, as the standard library does, and nothing else.
        #[test]
        fn escapes_are_what_utf_16_makes_of_them(
            units in prop::collection::vec(prop_oneof![0xd800..0xe000u16, any::<u16>()], 0..12),
        ) {
            let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let (line, lone) = without_lone_surrogates(&format!("{{\"text\": \"{escapes}\"}}"));
            let text = document("a.jsonl:1:", &line, "text").unwrap().unwrap();
            prop_assert_eq!(text, String::from_utf16_lossy(&units));
            prop_assert_eq!(lone, char::decode_utf16(units).filter(Result::is_err).count() as u64);
        }
    }

    #[test]
    fn what_stands_behind_a_backslash_of_its_own_is_no_escape() {
        for same in [r"\\ud800", r"a\n\u00e9 \ud83d\ude00", r"\u+d80", "\\é", "\\", r"\ud8"] {
            assert_eq!(without_lone_surrogates(same), (same.to_owned(), 0));
        }
        assert_eq!(without_lone_surrogates(r"\\\ud800é"), (r"\\\ufffdé".to_owned(), 1));
    }
}
