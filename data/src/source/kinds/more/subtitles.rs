//! Subtitles (SubRip's .srt and WebVTT): the text of the cues, line by line.

use super::html::Page;
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader};
use crate::source::start::Start;
use crate::source::{content::Content, event::Event};
use regex::Regex;
use std::sync::LazyLock;

pub struct Subtitles;

const ABOUT: About = About {
    id: "subtitles",
    name: "subtitle",
    endings: &[".srt", ".vtt"],
    document: "a file: its lines, as shown",
    without: "numbers, times, notes, styles, markup of italics and voices",
};

/// The longest line that is read, to bound the memory.
const LONGEST_LINE_BYTES: u64 = 1 << 20;

impl Reader for Subtitles {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        let text = start.text();
        let second = text.lines().nth(1).unwrap_or_default();
        start.has_generic_name() && (text.starts_with("WEBVTT") || (text.starts_with(['0', '1']) && is_time(second)))
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let mut parser = Parser::default();
        let too_long = "the line is too long for subtitles; leave the file out";
        content.each_line(LONGEST_LINE_BYTES, too_long, &mut |number, line| {
            parser.is_webvtt |= number == 1 && line.starts_with("WEBVTT");
            parser.line(line.trim(), sink)
        })?;
        parser.end(sink)
    }
}

/// The state while the lines of a file are read.
#[derive(Default)]
struct Parser {
    /// In WebVTT a blank line ends a cue; identifiers, notes and styles may follow. In SubRip's
    /// files a cue may contain blank lines.
    is_webvtt: bool,
    /// Whether the next lines are the text of a cue.
    in_cue: bool,
    /// Whether the line before was blank.
    after_blank: bool,
    /// A pending line that is a number, and whether it follows a blank one: it is the next cue's
    /// number if a time follows, else text.
    number: Option<(String, bool)>,
    /// Whether words are timed one by one, as YouTube does: each line is repeated above the next.
    repeats_lines: bool,
    /// The last line emitted.
    last: String,
}

impl Parser {
    fn line(&mut self, line: &str, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        self.repeats_lines |= line.contains("<c>");
        let after_blank = std::mem::replace(&mut self.after_blank, line.is_empty());
        if is_time(line) {
            // A blank line between a number and a time: the number was text of the cue before.
            if after_blank && self.number.as_ref().is_some_and(|(_, after_blank)| !after_blank) {
                self.emit_number(sink)?;
            }
            self.in_cue = true;
            self.number = None;
        } else if line.is_empty() && self.is_webvtt {
            self.in_cue = false;
            self.emit_number(sink)?;
        } else if !line.is_empty() && self.in_cue {
            self.emit_number(sink)?;
            let text = unmarked(line);
            match text.bytes().all(|byte| byte.is_ascii_digit()) {
                true => self.number = Some((text, after_blank)),
                false => self.emit(text, sink)?,
            }
        }
        Ok(())
    }

    /// At the end of a file, a number after a blank line belongs to a cue that was cut off.
    fn end(&mut self, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        self.number = self.number.take().filter(|(_, after_blank)| !after_blank);
        self.emit_number(sink)?;
        sink(Event::EndOfDocument)
    }

    fn emit_number(&mut self, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        match self.number.take() {
            Some((number, _)) => self.emit(number, sink),
            None => Ok(()),
        }
    }

    fn emit(&mut self, text: String, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let is_repeated = self.repeats_lines && text == self.last;
        if !text.is_empty() && !is_repeated {
            sink(Event::Text(&text))?;
            sink(Event::Text("\n"))?;
            self.last = text;
        }
        Ok(())
    }
}

/// Whether a line is the time range of a cue.
fn is_time(line: &str) -> bool {
    line.split_once("-->").is_some_and(|(from, to)| {
        let begins = |text: &str| text.trim().starts_with(|first: char| first.is_ascii_digit());
        begins(from) && begins(to) && from.contains(':')
    })
}

/// SubStation's tags such as `{\an8}`, and WebVTT's timestamps of words.
static MARKS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{\\[^}]*\}?|<[0-9]+:[0-9:.]+>").expect("the pattern is valid"));

/// A line as it is shown: without tags, entities decoded.
fn unmarked(line: &str) -> String {
    let line = MARKS.replace_all(line, "");
    match line.contains(['<', '&']) {
        true => Page::of(&line).text.trim().to_owned(),
        false => line.trim().to_owned(),
    }
}
