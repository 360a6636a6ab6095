//! A text as programs write it into JSON: whole, or as a list of its parts, which are put together as
//! they are read, so that many small ones take no memory.

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The text. A part of it is a text, or an object whose `text` is one: with a link, or in bold.
#[derive(Default)]
pub struct JsonText(pub String);

/// A part, put behind those before it.
struct Part<'a>(&'a mut String);

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;

        impl<'de> Visitor<'de> for Whole {
            type Value = JsonText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of its parts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<JsonText, E> {
                Ok(JsonText(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<JsonText, A::Error> {
                let mut text = String::new();
                while parts.next_element_seed(Part(&mut text))?.is_some() {}
                Ok(JsonText(text))
            }
        }

        deserializer.deserialize_any(Whole)
    }
}

impl<'de> de::DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.0.push_str(text);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let mut has_text = false;
        while let Some(key) = object.next_key::<String>()? {
            if key == "text" {
                self.0.push_str(&object.next_value::<String>()?);
                has_text = true;
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        if has_text { Ok(()) } else { Err(de::Error::missing_field("text")) }
    }
}
