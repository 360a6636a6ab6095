//! Subtitles (SubRip's .srt and WebVTT): what is said, line by line.

use super::html::Page;
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader};
use crate::source::start::Start;
use crate::source::{content::Content, event::Event};
use regex::Regex;
use std::sync::LazyLock;

/// The kind.
pub struct Subtitles;

const ABOUT: About = About {
    id: "subtitles",
    name: "subtitle",
    endings: &[".srt", ".vtt"],
    document: "a file: its lines, as they are shown",
    without: "numbers, times, notes, styles, the marks of italics and voices",
};

/// The longest line that is read, which bounds the memory that it takes.
const LONGEST_LINE_BYTES: u64 = 1 << 20;

impl Reader for Subtitles {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn begins(&self, start: &Start) -> bool {
        let text = start.text();
        let second = text.lines().nth(1).unwrap_or_default();
        start.is_unnamed() && (text.starts_with("WEBVTT") || (text.starts_with(['0', '1']) && is_time(second)))
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let mut reading = Reading::default();
        let too_long = "no line of subtitles is so long; leave it out";
        content.each_line(LONGEST_LINE_BYTES, too_long, &mut |number, line| {
            reading.is_webvtt |= number == 1 && line.starts_with("WEBVTT");
            reading.line(line.trim(), sink)
        })?;
        reading.end(sink)
    }
}

/// Where in a file the reading is.
#[derive(Default)]
struct Reading {
    /// There a blank line ends what is shown: names, notes and styles may follow. In SubRip's files
    /// what is shown may have blank lines in it.
    is_webvtt: bool,
    /// Behind a line that says a time, so that what comes is shown.
    shown: bool,
    /// The line before was blank.
    after_blank: bool,
    /// A line that is a number, and whether it stands behind a blank one: that of what is shown next,
    /// where a time follows.
    number: Option<(String, bool)>,
    /// Where words are timed one by one, as YouTube's are, a line is shown again above the next.
    rolls: bool,
    /// The line that was said last.
    last: String,
}

impl Reading {
    fn line(&mut self, line: &str, sink: &mut Documents<'_>) -> Result<(), Halt> {
        self.rolls |= line.contains("<c>");
        let after_blank = std::mem::replace(&mut self.after_blank, line.is_empty());
        if is_time(line) {
            // No blank line parts the number of what is shown from its time.
            if after_blank && self.number.as_ref().is_some_and(|(_, after_blank)| !after_blank) {
                self.say_number(sink)?;
            }
            self.shown = true;
            self.number = None;
        } else if line.is_empty() && self.is_webvtt {
            self.shown = false;
            self.say_number(sink)?;
        } else if !line.is_empty() && self.shown {
            self.say_number(sink)?;
            let text = unmarked(line);
            match text.bytes().all(|byte| byte.is_ascii_digit()) {
                true => self.number = Some((text, after_blank)),
                false => self.say(text, sink)?,
            }
        }
        Ok(())
    }

    /// A number behind a blank line at the end of a file is that of what was cut off.
    fn end(&mut self, sink: &mut Documents<'_>) -> Result<(), Halt> {
        self.number = self.number.take().filter(|(_, after_blank)| !after_blank);
        self.say_number(sink)?;
        sink(Event::EndOfDocument)
    }

    fn say_number(&mut self, sink: &mut Documents<'_>) -> Result<(), Halt> {
        match self.number.take() {
            Some((number, _)) => self.say(number, sink),
            None => Ok(()),
        }
    }

    fn say(&mut self, text: String, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let is_again = self.rolls && text == self.last;
        if !text.is_empty() && !is_again {
            sink(Event::Text(&text))?;
            sink(Event::Text("\n"))?;
            self.last = text;
        }
        Ok(())
    }
}

/// Whether a line says from when to when the next ones are shown.
fn is_time(line: &str) -> bool {
    line.split_once("-->").is_some_and(|(from, to)| {
        let begins = |text: &str| text.trim().starts_with(|first: char| first.is_ascii_digit());
        begins(from) && begins(to) && from.contains(':')
    })
}

/// SubStation's marks such as `{\an8}`, and WebVTT's times of words.
static MARKS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{\\[^}]*\}?|<[0-9]+:[0-9:.]+>").expect("the pattern is valid"));

/// A line without what is not shown of it: marks, tags, entities.
fn unmarked(line: &str) -> String {
    let line = MARKS.replace_all(line, "");
    match line.contains(['<', '&']) {
        true => Page::of(&line).text.trim().to_owned(),
        false => line.trim().to_owned(),
    }
}
