//! Chats as JSON: Telegram's export (of one chat, or of all) and DiscordChatExporter's.
//!
//! The file is read message by message, so that its size is no matter.

use super::json_text::JsonText;
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error, event::Dated, event::Event};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::{fmt, io::BufReader};

/// The kind.
pub struct ChatJson;

const ABOUT: About = About {
    id: "chat_json",
    name: "chat",
    endings: &[],
    document: "a chat: a turn a line, with the name",
    without: "times, reactions, what the program itself says, media",
};

impl Reader for ChatJson {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn begins(&self, start: &Start) -> bool {
        let text = start.text();
        let has = |key: &str| text.contains(key);
        let telegram = (has("\"messages\"") && has("\"type\"") && has("\"name\"")) || has("\"personal_information\"");
        let discord = has("\"guild\"") && has("\"channel\"");
        start.name.ends_with(".json") && text.starts_with('{') && (telegram || discord)
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let mut halted = None;
        let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, content.text()?));
        let read = Chat { sink, halted: &mut halted }.deserialize(&mut json);
        match (read, halted) {
            (_, Some(halt)) => Err(halt),
            (Ok(()), None) => Ok(()),
            (Err(error), None) if error.is_io() => {
                let line = format!("line {}", error.line());
                Err(content.cannot_read(&line, error.into()).into())
            }
            (Err(reason), None) => {
                Err(Error::unusable(content.name(), format!("is no export of a chat ({reason}); export it again"))
                    .into())
            }
        }
    }
}

/// A message of either program.
#[derive(Deserialize)]
struct Message {
    /// Telegram's.
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    text: Option<JsonText>,
    /// Discord's; Telegram signs what is said in a channel so.
    #[serde(default)]
    author: Option<Author>,
    #[serde(default)]
    content: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Author {
    Signature(String),
    Account {
        name: String,
        #[serde(default)]
        nickname: Option<String>,
    },
}

impl Author {
    fn name(self) -> String {
        match self {
            Self::Signature(name) => name,
            Self::Account { name, nickname } => nickname.unwrap_or(name),
        }
    }
}

impl Message {
    /// Who says what; `None` where the program says it, or where it is no text.
    fn turn(self) -> Option<String> {
        let is_said = match self.kind.as_deref() {
            // 20 and 23 are answers to commands, for which the exporter has no names.
            None | Some("message" | "Default" | "Reply" | "20" | "23") => true,
            // Of Discord's many kinds the others are what it says itself.
            Some(kind) => kind != "service" && self.author.is_none(),
        };
        if !is_said {
            return None;
        }
        let author = self.author.map(Author::name);
        let text = self.text.map(|text| text.0).or(self.content)?;
        let name = self.from.or(author).unwrap_or_else(|| "?".to_owned());
        (!text.trim().is_empty()).then(|| format!("{name}: {text}\n"))
    }
}

/// An object with messages in it, or with chats.
struct Chat<'a, 'b> {
    sink: &'a mut Documents<'b>,
    halted: &'a mut Option<Halt>,
}

impl Chat<'_, '_> {
    fn tell<E: de::Error>(&mut self, event: Event<'_>) -> Result<(), E> {
        (self.sink)(event).map_err(|halt| {
            *self.halted = Some(halt);
            E::custom("stopped")
        })
    }

    fn reborrow(&mut self) -> Chat<'_, '_> {
        Chat { sink: self.sink, halted: self.halted }
    }
}

impl<'de> DeserializeSeed<'de> for Chat<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Chat<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an export of a chat")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        #[derive(Deserialize)]
        struct Channel {
            name: String,
        }
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => {
                    if let Some(name) = map.next_value::<Option<String>>()? {
                        self.tell(Event::Title(&name))?;
                    }
                }
                "channel" => {
                    let Channel { name } = map.next_value()?;
                    self.tell(Event::Title(&name))?;
                }
                "messages" => {
                    self.tell(Event::Dated(Dated::Throughout))?;
                    map.next_value_seed(Messages(self.reborrow()))?;
                    self.tell(Event::EndOfDocument)?;
                }
                "chats" | "left_chats" => map.next_value_seed(self.reborrow())?,
                "list" => map.next_value_seed(Chats(self.reborrow()))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A list of messages.
struct Messages<'a, 'b>(Chat<'a, 'b>);

/// A list of chats.
struct Chats<'a, 'b>(Chat<'a, 'b>);

impl<'de> DeserializeSeed<'de> for Messages<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Messages<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(message) = list.next_element::<Message>()? {
            if let Some(turn) = message.turn() {
                self.0.tell(Event::Text(&turn)).map_err(A::Error::custom::<A::Error>)?;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Chats<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Chats<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of chats")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(self.0.reborrow())?.is_some() {}
        Ok(())
    }
}
