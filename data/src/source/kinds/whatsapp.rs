//! A chat as WhatsApp exports it: a line says when, who and what, and the next may go on.

use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader};
use crate::source::start::Start;
use crate::source::{content::Content, event::Dated, event::Event};

/// The kind.
pub struct WhatsApp;

const ABOUT: About = About {
    id: "whatsapp",
    name: "WhatsApp chat",
    endings: &["_chat.txt"],
    document: "a chat: a turn a line, with the name",
    without: "times, what the program itself says, media that were left out",
};

/// The longest line that is read, which bounds the memory that it takes.
const LONGEST_LINE_BYTES: u64 = 1 << 20;

/// Whether this stands for a picture or a sound: `<Media omitted>`, in whatever language, or `image
/// omitted`.
fn is_media(said: &str) -> bool {
    said.starts_with('<') && said.ends_with('>') || said.ends_with(" omitted")
}

impl Reader for WhatsApp {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn begins(&self, start: &Start) -> bool {
        let mut lines = start.text().lines();
        start.is_unnamed() && lines.next().is_some_and(|line| stamped(line).is_some()) && {
            // A diary has dates, too.
            start.text().lines().take(20).filter_map(stamped).any(|rest| rest.contains(": "))
        }
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        sink(Event::Dated(Dated::Throughout))?;
        let mut in_turn = false;
        content.each_line(LONGEST_LINE_BYTES, "no line of a chat is so long; leave it out", &mut |_, line| {
            let text = line.trim_end_matches(['\n', '\r']);
            let said = match stamped(text) {
                Some(rest) => {
                    let turn = rest.split_once(": ").map(|(_, said)| said.trim_start_matches(is_mark));
                    in_turn = turn.is_some_and(|said| !is_media(said));
                    rest
                }
                None => text,
            };
            if in_turn {
                sink(Event::Text(&said.replace(is_mark, "")))?;
                sink(Event::Text("\n"))?;
            }
            Ok(())
        })?;
        sink(Event::EndOfDocument)
    }
}

/// Marks of the direction of writing, which the program puts before what it says itself.
fn is_mark(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
}

/// What stands behind the date and time that a line begins with, `[date, time] ` or `date, time - `;
/// `None` where it begins with none.
fn stamped(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(is_mark);
    let (stamp, rest) = match line.strip_prefix('[') {
        Some(line) => line.split_once("] ")?,
        None => line.split_once(" - ")?,
    };
    let (date, time) = stamp.split_once([',', ' '])?;
    let numbers = |text: &str, parts: usize| {
        let found = text.split(['/', '.', '-', ':']).filter(|part| !part.is_empty());
        let all_digits = found.clone().all(|part| part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit()));
        all_digits && found.count() >= parts
    };
    // In French an "à" stands before the time.
    let time =
        time.trim().split([' ', '\u{202f}']).take(2).find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    (stamp.len() <= 40 && numbers(date, 3) && time.contains(':') && numbers(time, 2)).then_some(rest)
}
