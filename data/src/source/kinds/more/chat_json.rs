//! Chats in JSON: exports of Telegram (one chat, or all), DiscordChatExporter, Facebook and
//! Instagram, and Messenger (end-to-end encrypted chats, which have an export of their own).
//!
//! The file is streamed message by message, so that its size does not matter; a message has a
//! limit, since it is held with all its fields until its text is found. Facebook's files begin with
//! the newest message, so all turns are held in memory and emitted in reverse; so are Messenger's,
//! unless their times say otherwise. Unexpected values in a message count as missing.

use super::json_text::JsonText;
use crate::source::allowance::{Allowance, Allowed};
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, in_one_line};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error, event::Dated, event::Event};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::{fmt, io::BufReader};

pub struct ChatJson;

const ABOUT: About = About {
    id: "chat_json",
    name: "chat",
    endings: &[],
    document: "a chat: one turn per line, with the name",
    without: "times, reactions, system messages, media",
};

/// The longest message that is read, to bound the memory: its fields may take sixteen times that.
const LONGEST_MESSAGE_BYTES: u64 = 16 << 20;

/// The most that is held of a chat in reverse order. Facebook's files have ten thousand messages.
const MAX_HELD_BYTES: usize = 64 << 20;

impl Reader for ChatJson {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        let text = start.text();
        let has = |key: &str| text.contains(key);
        let telegram = (has("\"messages\"") && has("\"type\"") && has("\"name\"")) || has("\"personal_information\"");
        let discord = has("\"guild\"") && has("\"channel\"");
        // The list of participants comes first, and may be longer than the known beginning.
        let mut signs = text.chars().filter(|sign| !sign.is_whitespace());
        let names_first = "{\"participants\":[{\"name\":".chars().all(|sign| signs.next() == Some(sign));
        let has_sender = has("\"sender_name\"") || has("\"senderName\"");
        let facebook = has("\"participants\"") && (names_first || has_sender);
        start.name.ends_with(".json") && text.starts_with('{') && (telegram || discord || facebook)
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let mut halted = None;
        let allowance = Allowance::new(LONGEST_MESSAGE_BYTES);
        let text = Allowed::new(content.text()?, allowance.clone());
        let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, text));
        let chat = Chat { name: content.name(), allowance: &allowance, sink, halted: &mut halted };
        match (chat.deserialize(&mut json), halted) {
            (_, Some(halt)) => Err(halt),
            (Ok(()), None) => Ok(()),
            (Err(_), None) if allowance.is_exceeded() => {
                let what = format!("has a message longer than {} MiB; leave it out", LONGEST_MESSAGE_BYTES >> 20);
                Err(Error::unusable(content.name(), what).into())
            }
            (Err(error), None) if error.is_io() => {
                let line = format!("line {}", error.line());
                Err(content.cannot_read(&line, error.into()).into())
            }
            (Err(reason), None) => {
                Err(Error::unusable(content.name(), format!("is not a chat export ({reason}); export it again")).into())
            }
        }
    }
}

/// A message of any of the programs, with the fields of all of them.
#[derive(Deserialize)]
struct Message {
    /// Telegram's.
    #[serde(default)]
    from: Option<JsonText>,
    #[serde(default)]
    text: Option<JsonText>,
    /// Discord's; in Telegram the signature in a channel.
    #[serde(default)]
    author: Option<Author>,
    /// Discord's and Facebook's.
    #[serde(default)]
    content: Option<JsonText>,
    #[serde(default, rename = "type")]
    kind: Option<JsonText>,
    /// Facebook's.
    #[serde(default)]
    sender_name: Option<JsonText>,
    #[serde(default, alias = "isUnsent")]
    is_unsent: Option<bool>,
    #[serde(default)]
    call_duration: Option<IgnoredAny>,
    /// Messenger's.
    #[serde(default, rename = "senderName")]
    encrypted_sender: Option<JsonText>,
    #[serde(default)]
    timestamp: Option<Time>,
}

/// A message's time, if it is a number: Discord's is a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Milliseconds(f64),
    Other(IgnoredAny),
}

/// An entry in a list of messages.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Message(Box<Message>),
    Other(IgnoredAny),
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
    Other(IgnoredAny),
}

impl Author {
    fn name(self) -> Option<String> {
        match self {
            Self::Signature(name) => Some(name),
            Self::Account { name, nickname } => Some(nickname.unwrap_or(name)),
            Self::Other(_) => None,
        }
    }
}

/// The text, unless it is empty.
fn non_empty(text: Option<JsonText>) -> Option<String> {
    text.map(|JsonText(text)| text).filter(|text| !text.is_empty())
}

impl Message {
    /// When it was sent, for Messenger's.
    fn milliseconds(&self) -> Option<f64> {
        match self.timestamp {
            Some(Time::Milliseconds(time)) => Some(time),
            Some(Time::Other(_)) | None => None,
        }
    }

    /// The message as a line `name: text`; `None` for a system message or one without text.
    fn turn(self) -> Option<String> {
        let is_message = match non_empty(self.kind).as_deref() {
            // 20 and 23 are Discord's replies to commands, for which the exporter has no names.
            None | Some("message" | "Default" | "Reply" | "20" | "23") => true,
            // Messenger's placeholders stand for what it does not export.
            Some("service" | "Call" | "Subscribe" | "Unsubscribe" | "placeholder") => false,
            // Discord's many other types are system messages.
            Some(_) => self.author.is_none(),
        };
        if !is_message || self.call_duration.is_some() || self.is_unsent == Some(true) {
            return None;
        }
        let (is_facebooks, is_messengers) = (self.sender_name.is_some(), self.encrypted_sender.is_some());
        let fix = |text: String| if is_facebooks { fix_mojibake(text) } else { text };
        let author = self.author.and_then(Author::name);
        let sender = non_empty(self.sender_name).or(non_empty(self.encrypted_sender));
        let name = non_empty(self.from).or(sender).or(author).map_or_else(|| "?".to_owned(), fix);
        let text = non_empty(self.text).or(non_empty(self.content)).map(fix)?;
        let is_notice = (is_facebooks || is_messengers) && is_notice(&name, &text);
        (!text.trim().is_empty() && !is_notice).then(|| format!("{name}: {text}\n"))
    }
}

/// Whether this is a notice of Facebook or Instagram in a person's name; no key marks these.
fn is_notice(name: &str, text: &str) -> bool {
    let text = text.trim();
    let is_reaction = text.starts_with("Reacted ") && text.ends_with(" to your message");
    let who = text.strip_suffix(" sent an attachment.");
    is_reaction || text == "Liked a message" || who.is_some_and(|who| who == name || who == "You")
}

/// Repairs Facebook's mojibake: it writes each byte of the UTF-8 as a character, Ã© for é.
fn fix_mojibake(text: String) -> String {
    let bytes: Option<Vec<u8>> = text.chars().map(|character| u8::try_from(character).ok()).collect();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or(text)
}

/// The turns of a chat that is held in memory, and the times of its first and last message.
#[derive(Default)]
struct Held {
    turns: Vec<String>,
    first: Option<f64>,
    last: Option<f64>,
}

impl Held {
    fn push(&mut self, turn: String, milliseconds: Option<f64>) {
        self.turns.push(turn);
        self.first = self.first.or(milliseconds);
        self.last = milliseconds.or(self.last);
    }

    /// The turns from the oldest to the newest. The first is the newest unless the times show that
    /// it is the oldest.
    fn in_order(mut self) -> Vec<String> {
        let is_oldest_first = self.first.zip(self.last).is_some_and(|(first, last)| first < last);
        if !is_oldest_first {
            self.turns.reverse();
        }
        self.turns
    }
}

/// Deserializes an object that contains messages or chats, and emits them.
struct Chat<'a, 'b> {
    /// The file's name, for errors.
    name: &'a str,
    /// How much may be read of a message, or of another field of the chat.
    allowance: &'a Allowance,
    sink: &'a mut EventSink<'b>,
    halted: &'a mut Option<Halt>,
}

impl Chat<'_, '_> {
    fn emit<E: de::Error>(&mut self, event: Event<'_>) -> Result<(), E> {
        (self.sink)(event).map_err(|halt| {
            *self.halted = Some(halt);
            E::custom("stopped")
        })
    }

    /// Emits the title and date at the start of a chat.
    fn begin_chat<E: de::Error>(&mut self, title: Option<String>) -> Result<(), E> {
        let title = in_one_line(title.as_deref().unwrap_or_default());
        if !title.is_empty() {
            self.emit::<E>(Event::Title(&title))?;
        }
        self.emit(Event::Dated(Dated::Throughout))
    }

    fn reborrow(&mut self) -> Chat<'_, '_> {
        Chat { name: self.name, allowance: self.allowance, sink: self.sink, halted: self.halted }
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
            #[serde(default)]
            name: Option<JsonText>,
        }
        // Facebook's and Messenger's objects begin with the participants; Facebook's have the title
        // at the end.
        let (mut title, mut held) = (None, None::<Held>);
        while let Some(key) = map.next_key::<String>()? {
            self.allowance.renew();
            match (key.as_str(), &mut held) {
                ("name" | "title" | "threadName", _) => title = non_empty(map.next_value()?),
                ("channel", _) => {
                    title = map.next_value::<Option<Channel>>()?.and_then(|channel| non_empty(channel.name));
                }
                ("participants", None) => {
                    map.next_value::<IgnoredAny>()?;
                    held = Some(Held::default());
                }
                ("messages", Some(held)) => {
                    *held = Held::default();
                    map.next_value_seed(Messages { chat: self.reborrow(), held: Some(held) })?;
                }
                ("messages", None) => {
                    self.begin_chat::<A::Error>(title.take())?;
                    map.next_value_seed(Messages { chat: self.reborrow(), held: None })?;
                    self.emit::<A::Error>(Event::EndOfDocument)?;
                }
                ("chats" | "left_chats", None) => map.next_value_seed(self.reborrow())?,
                ("list", None) => map.next_value_seed(Chats(self.reborrow()))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if let Some(turns) = held.map(Held::in_order).filter(|turns| !turns.is_empty()) {
            // A title of Messenger's is right already, and stays.
            self.begin_chat::<A::Error>(title.map(fix_mojibake))?;
            for turn in &turns {
                self.emit::<A::Error>(Event::Text(turn))?;
            }
            self.emit::<A::Error>(Event::EndOfDocument)?;
        }
        Ok(())
    }
}

/// Deserializes a list of messages.
struct Messages<'a, 'b> {
    chat: Chat<'a, 'b>,
    /// The destination of turns that may come in reverse order; the others are emitted at once.
    held: Option<&'a mut Held>,
}

/// Deserializes a list of chats.
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
        let mut held_bytes = 0;
        while let Some(entry) = list.next_element::<Entry>()? {
            self.chat.allowance.renew();
            let Entry::Message(message) = entry else { continue };
            let milliseconds = message.milliseconds();
            let Some(turn) = message.turn() else { continue };
            let Some(held) = &mut self.held else {
                self.chat.emit::<A::Error>(Event::Text(&turn))?;
                continue;
            };
            held_bytes += size_of::<String>() + turn.len();
            if held_bytes > MAX_HELD_BYTES {
                let what = format!(
                    "has its newest message first, and such an export may have at most {} MiB of messages; export a \
                     shorter period",
                    MAX_HELD_BYTES >> 20
                );
                *self.chat.halted = Some(Error::unusable(self.chat.name, what).into());
                return Err(A::Error::custom("stopped"));
            }
            held.push(turn, milliseconds);
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
