//! WhatsApp's exported chats: a line has time, name and message, which may span more lines.

use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader};
use crate::source::start::Start;
use crate::source::{content::Content, event::Dated, event::Event};
use std::collections::BTreeSet;

pub struct WhatsApp;

const ABOUT: About = About {
    id: "whatsapp",
    name: "WhatsApp chat",
    endings: &["_chat.txt"],
    document: "a chat: one turn per line, with the name",
    without: "times, system messages, omitted media",
};

/// The longest line that is read, which bounds the memory that it takes.
const LONGEST_LINE_BYTES: u64 = 1 << 20;

/// The longest name of a person, and media placeholder without a file name, in characters.
const LONGEST_NAME: usize = 60;
const LONGEST_PLACEHOLDER: usize = 60;

/// The left-to-right mark, which phones put before WhatsApp's own words.
const SYSTEM_MARK: char = '\u{200e}';

/// The notes that WhatsApp appends to an edited message, if no mark comes before them.
const EDITED_NOTES: [&str; 6] = [
    "This message was edited",
    "Diese Nachricht wurde bearbeitet",
    "Ce message a été modifié",
    "Se editó este mensaje",
    "Questo messaggio è stato modificato",
    "Mensagem editada",
];

/// The most words in a name that occurs only once.
const MAX_WORDS: usize = 6;

/// The media in placeholders such as `image omitted`.
const MEDIA: [&str; 10] =
    ["image", "photo", "video", "audio", "sticker", "GIF", "document", "Contact card", "video note", "voice message"];

/// Whether a message is a placeholder for media: `<Media omitted>`, in any language; `image
/// omitted`, possibly after a document's name and a mark; `null` for view-once media.
fn is_media(message: &str) -> bool {
    if message == "null" || is_attached(message) {
        return true;
    }
    if let Some(what) = message.strip_suffix(" omitted") {
        return what.rsplit(is_mark).next().is_some_and(|what| MEDIA.contains(&what));
    }
    let Some(placeholder) = message.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else { return false };
    // A single word is a person's own, except in scripts without spaces between words.
    let is_sentence = placeholder.contains(' ') || !placeholder.is_ascii() || placeholder == "Multimedia";
    // `attached: ` and a file name, in any language.
    let is_file = placeholder.split_once(": ").is_some_and(|(_, file)| has_ending(file));
    let is_short = is_file || placeholder.chars().count() <= LONGEST_PLACEHOLDER;
    is_sentence && is_short && !placeholder.contains(['<', '>']) && placeholder.starts_with(char::is_alphabetic)
}

/// Whether this names a file beside the chat, `IMG-20210503-WA0001.jpg (file attached)`: in any
/// language if WhatsApp has named the file.
fn is_attached(message: &str) -> bool {
    let parts = message.strip_suffix(')').and_then(|message| message.rsplit_once(" ("));
    parts.is_some_and(|(file, words)| {
        let is_named = file.contains("-WA") && !file.contains(' ');
        has_ending(file) && (is_named || words == "file attached")
    })
}

/// Whether this may be a file name, by its extension.
fn has_ending(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| {
        (1..=5).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// A line of a message without WhatsApp's note at its end: that it was edited, or the file that it
/// is the caption of.
fn without_note(line: &str) -> &str {
    let note = line.trim_end().strip_suffix('>').and_then(|line| line.rsplit_once('<'));
    match note {
        Some((text, note)) if text.ends_with(SYSTEM_MARK) || EDITED_NOTES.contains(&note.trim_end_matches('.')) => {
            text.trim_end_matches([SYSTEM_MARK, ' '])
        }
        _ => line,
    }
}

/// Whether these lines, after their timestamps, are a chat and not a diary or a log: a name before
/// a colon occurs twice, or at least two thirds of the texts before a colon may be names.
fn is_chat<'a>(timestamped: impl Iterator<Item = &'a str>) -> bool {
    let (mut lines, mut turns, mut named, mut names) = (0, 0, 0, BTreeSet::new());
    for rest in timestamped {
        lines += 1;
        let Some((name, _)) = rest.split_once(": ") else { continue };
        turns += 1;
        if name.chars().count() <= LONGEST_NAME {
            if !names.insert(name) {
                return true;
            }
            named += usize::from(may_be_name(name));
        }
    }
    // A single colon in several lines suggests a diary.
    (turns > 1 || (turns == 1 && lines <= 2)) && named * 3 >= turns * 2
}

/// Whether this may be a name, not the start of a sentence: few words, and none in lowercase.
fn may_be_name(text: &str) -> bool {
    let mut words = text.split_whitespace();
    text.split_whitespace().count() <= MAX_WORDS && words.all(|word| !word.starts_with(char::is_lowercase))
}

impl Reader for WhatsApp {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        let mut lines = start.text().lines();
        start.has_generic_name()
            && lines.next().is_some_and(|line| after_timestamp(line).is_some())
            && is_chat(start.text().lines().filter_map(after_timestamp))
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        sink(Event::Dated(Dated::Throughout))?;
        let mut turn = Turn::System;
        content.each_line(
            LONGEST_LINE_BYTES,
            "the line is too long for a chat; leave the file out",
            &mut |_, line| {
                let text = line.trim_end_matches(['\n', '\r']);
                let message = match (after_timestamp(text), &turn) {
                    (Some(rest), _) => {
                        turn = Turn::of(rest);
                        rest.to_owned()
                    }
                    (None, Turn::Media(name)) if !text.trim().is_empty() => {
                        let caption = format!("{name}: {text}");
                        turn = Turn::Message;
                        caption
                    }
                    (None, _) => text.to_owned(),
                };
                if turn == Turn::Message {
                    sink(Event::Text(&without_note(&message).replace(is_mark, "")))?;
                    sink(Event::Text("\n"))?;
                }
                Ok(())
            },
        )?;
        sink(Event::EndOfDocument)
    }
}

/// Whose the lines of a message are.
#[derive(PartialEq, Eq)]
enum Turn {
    /// WhatsApp's own.
    System,
    /// A media placeholder or other words of WhatsApp in the name of this person, whose caption may
    /// follow on the next line.
    Media(String),
    /// A person's.
    Message,
}

impl Turn {
    /// The turn that begins with a line, by its text after the timestamp.
    fn of(rest: &str) -> Self {
        match rest.split_once(": ") {
            None => Self::System,
            Some((name, message)) if is_media(message.trim_start_matches(is_mark)) => Self::Media(name.to_owned()),
            // Only this line is WhatsApp's: a poll or the person's pasted text may follow.
            Some((name, message)) if message.starts_with(SYSTEM_MARK) => Self::Media(name.to_owned()),
            Some(_) => Self::Message,
        }
    }
}

/// Marks of the text direction, which WhatsApp puts before its own words.
fn is_mark(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
}

/// The text after the timestamp at the start of a line, `[date, time] ` or `date, time - `; `None`
/// if it has no timestamp.
fn after_timestamp(line: &str) -> Option<&str> {
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
    // In French, "à" comes before the time.
    let time =
        time.trim().split([' ', '\u{202f}']).take(2).find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let is_time = time.contains(':') || is_dotted_time(date, time);
    (stamp.len() <= 40 && numbers(date, 3) && numbers(time, 2) && is_time).then_some(rest)
}

/// Whether this is a time with a point before the minutes, as in Finland and Denmark. Their dates
/// do not begin with the year; after a date that does, the number may be an amount.
fn is_dotted_time(date: &str, time: &str) -> bool {
    let begins_with_year = date.bytes().take_while(u8::is_ascii_digit).count() == 4;
    let is_below = |(part, most): (&str, u32)| part.parse().is_ok_and(|number: u32| number < most);
    let has_two_digits = |part: &str| part.len() == 2;
    !begins_with_year && time.split('.').zip([24, 60, 60]).all(is_below) && time.split('.').skip(1).all(has_two_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_program_writes_for_media_is_left_out() {
        for media in [
            "<Media omitted>",
            "<Medien ausgeschlossen>",
            "<メディアは含まれていません>",
            "<attached: 00000012-PHOTO-2021-05-03-10-00-00.jpg>",
            "<attached: 00000012-a very long name of a document that is over 60 characters.pdf>",
            "<Multimedia>",
            "image omitted",
            "photo omitted",
            "Contact card omitted",
            "Report.pdf • \u{200e}2 pages \u{200e}document omitted",
            "IMG-20210503-WA0001.jpg (file attached)",
            "PTT-20210503-WA0002.opus (Datei angehängt)",
            "Report of May.pdf (file attached)",
            "null",
        ] {
            assert!(is_media(media), "{media}");
        }
        for own in ["that comma was omitted", "<3 see >.<", "<b>yes</b>", "<sigh>", "<>", "omitted", "a <b c>"] {
            assert!(!is_media(own), "{own}");
        }
        for own in ["see notes.txt (mine)", "the-WALL. (file attached)", "null and void", "(file attached)"] {
            assert!(!is_media(own), "{own}");
        }
    }

    #[test]
    fn what_the_program_says_behind_a_message_is_cut_off() {
        for (line, expected) in [
            ("Ann: Yes <This message was edited>", "Ann: Yes"),
            ("Ja. \u{200e}<Diese Nachricht wurde bearbeitet.>", "Ja."),
            ("Ann: At dusk \u{200e}<attached: 00000012-PHOTO-2021-05-03-10-00-00.jpg>", "Ann: At dusk"),
            ("a <b c>", "a <b c>"),
            ("1 > 0 ", "1 > 0 "),
            ("<3", "<3"),
        ] {
            assert_eq!(without_note(line), expected);
        }
    }

    #[test]
    fn a_point_may_stand_before_the_minutes() {
        for stamp in ["12.3.2024 klo 18.05 - ", "12.03.24, 18.05 - ", "[12.03.2024 18.05.12] ", "12/03/24 9.05 - "] {
            assert_eq!(after_timestamp(&format!("{stamp}Ann: Yes")), Some("Ann: Yes"), "{stamp}");
        }
        for line in [
            "2024-03-12 18.50 - Groceries: milk",
            "12.03.24 99.90 - Shoes: new",
            "12.03.24, 3.5 - a: b",
            "12.03.24, 18 - a: b",
            "12.03.24, 1.234 - a: b",
        ] {
            assert_eq!(after_timestamp(line), None, "{line}");
        }
    }

    #[test]
    fn a_diary_with_colons_is_no_chat() {
        let begins = |text: &str| WhatsApp.matches(&Start { bytes: text.into(), name: "a.txt".to_owned() });
        let chat = "31/12/21, 10:14 - Messages are encrypted.\n31/12/21, 10:15 - Bob: hello\n\
                    31/12/21, 10:16 - Ann: one\n31/12/21, 10:17 - Ann: two\nand more\n";
        assert!(begins(chat));
        let diary = "2021-05-03, 10:00 - I met Anna today: she was well.\nWe walked.\n\
                     2021-05-04, 11:00 - It rained all day.\n2021-05-05, 09:00 - A letter came.\n";
        assert!(!begins(diary));
        let colons = "2021-05-03, 10:00 - I met Anna: she was well.\n2021-05-04, 11:00 - The rain: all day.\n\
                      2021-05-05, 09:00 - A letter: it came.\n";
        assert!(!begins(colons));
        let alone = "2021-05-03, 10:00 - London: we arrived.\n2021-05-04, 11:00 - It rained.\n\
                     2021-05-05, 09:00 - A letter came.\n";
        assert!(!begins(alone));
    }

    #[test]
    fn short_chats_and_those_of_groups_are_chats() {
        let begins = |text: &str| WhatsApp.matches(&Start { bytes: text.into(), name: "a.txt".to_owned() });
        let line = |rest: &str| format!("31/12/21, 10:14 - {rest}\n");
        let chat = |lines: &[&str]| lines.iter().map(|rest| line(rest)).collect::<String>();
        assert!(begins(&chat(&["Bob: hello", "Ann: hi"])));
        assert!(begins(&chat(&["Messages are encrypted.", "Bob: hello"])));
        assert!(begins(&chat(&["Bob: hi", "Ann: hi", "Cy Lee: hi", "+49 170 12345: hi", "Eve: hi", "Flo: hi"])));
        let joined = line("Somebody joined using this group's invite link").repeat(9);
        assert!(begins(&(joined + &chat(&["Bob: a", "Ann: b"]).repeat(4))));
        let long = "Maximiliane Friederike von Hohenau";
        assert_eq!(long.chars().count(), 34);
        assert!(begins(&(line(&format!("{long}: hello")).repeat(3) + &line("mum: yes"))));
    }
}
