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
        let (mut shown, mut rolls, mut last) = (false, false, String::new());
        content.each_line(LONGEST_LINE_BYTES, "no line of subtitles is so long; leave it out", &mut |_, line| {
            let text = line.trim();
            // Where words are timed one by one, as YouTube's are, a line is shown again above the next.
            rolls |= text.contains("<c>");
            if is_time(text) {
                shown = true;
            } else if text.is_empty() {
                shown = false;
            } else if shown {
                let text = unmarked(text);
                let is_again = rolls && text == last;
                if !text.is_empty() && !is_again {
                    sink(Event::Text(&text))?;
                    sink(Event::Text("\n"))?;
                    last = text;
                }
            }
            Ok(())
        })?;
        sink(Event::EndOfDocument)
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
