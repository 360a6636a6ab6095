//! Normalizes the characters of a text: Unicode NFC, line ends, unusual spaces. Works line by line,
//! so that a document may have any length.

use super::{Changes, Clean};
use crate::source::event::{Event, EventSink, Halt};
use memchr::memchr_iter;
use unicode_normalization::{IsNormalized, UnicodeNormalization, char::is_combining_mark, is_nfc_quick};

/// A line longer than this is cleaned in parts.
const LONGEST_LINE_BYTES: usize = 1 << 20;

/// The most blank lines that are kept in a row.
const MAX_BLANK_LINES: u32 = 2;

/// The line ends of classic Mac OS, and those of Unicode.
const LINE_ENDS: [char; 4] = ['\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Cleans the events of a reader.
pub struct Cleaner {
    clean: Clean,
    pub changes: Changes,
    /// The current line, not yet complete.
    line: String,
    blank_lines: u32,
}

impl Cleaner {
    pub fn new(clean: Clean) -> Self {
        Self { clean, changes: Changes::default(), line: String::new(), blank_lines: 0 }
    }

    /// Passes an event to `sink` with its text cleaned.
    pub fn event(&mut self, event: Event<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        match event {
            Event::Text(text) => {
                self.changes.mojibake += mojibake(text);
                if self.clean != Clean::All {
                    return sink(Event::Text(text));
                }
                let mut out = String::with_capacity(text.len());
                for part in text.split_inclusive('\n') {
                    self.line.push_str(part);
                    if part.ends_with('\n') {
                        self.end_line(&mut out);
                    } else if self.line.len() > LONGEST_LINE_BYTES {
                        self.end_part(&mut out);
                    }
                }
                sink(Event::Text(&out))
            }
            Event::EndOfDocument => {
                let mut out = String::new();
                self.end_line(&mut out);
                self.blank_lines = 0;
                if !out.is_empty() {
                    sink(Event::Text(&out))?;
                }
                sink(Event::EndOfDocument)
            }
            Event::Title(_) | Event::Dated(_) => sink(event),
        }
    }

    /// Cleans the current line, if there is one.
    fn end_line(&mut self, out: &mut String) {
        let whole = std::mem::take(&mut self.line);
        let (line, ended) = match whole.strip_suffix('\n') {
            Some(line) => (line, true),
            None => (whole.as_str(), false),
        };
        let line = match line.strip_suffix('\r') {
            Some(line) => {
                self.changes.line_ends += 1;
                line
            }
            None => line,
        };
        self.lines(line, ended, out);
    }

    /// Cleans a line that may contain line ends other than a line feed.
    fn lines(&mut self, line: &str, ended: bool, out: &mut String) {
        let mut lines = line.split(LINE_ENDS).peekable();
        while let Some(line) = lines.next() {
            let more = lines.peek().is_some();
            self.changes.line_ends += u64::from(more);
            self.one_line(line, ended || more, out);
        }
    }

    fn one_line(&mut self, line: &str, ended: bool, out: &mut String) {
        let line = self.blanks(line);
        let trimmed = line.trim_end_matches([' ', '\t']);
        self.changes.blanks += u64::from(trimmed.len() < line.len());
        if trimmed.is_empty() && ended {
            self.blank_lines += 1;
            if self.blank_lines > MAX_BLANK_LINES {
                self.changes.blanks += 1;
                return;
            }
        } else {
            self.blank_lines = 0;
        }
        self.compose(trimmed, out);
        if ended {
            out.push('\n');
        }
    }

    /// Cleans the beginning of a line that is too long to buffer: up to its last line end of
    /// another kind, else to before its last printable ASCII character, else to before its last
    /// character that does not compose with what is before it, so as not to cut these off.
    fn end_part(&mut self, out: &mut String) {
        // The last character may be half of a line end.
        let last = self.line.char_indices().next_back().map_or(0, |(at, _)| at);
        if let Some(at) = self.line[..last].rfind(LINE_ENDS) {
            let part: String = self.line.drain(..at).collect();
            self.line.remove(0); // the line end itself
            self.changes.line_ends += 1;
            return self.lines(&part, true, out);
        }
        // Something must go, or the line would grow without end.
        let last_of = |is_wanted: fn(char) -> bool| self.line.rfind(is_wanted).filter(|&at| at > 0);
        let at = last_of(|character| character.is_ascii_graphic())
            .or_else(|| last_of(|character| !composes(character)))
            .unwrap_or(self.line.len());
        let part: String = self.line.drain(..at).collect();
        let part = self.blanks(&part);
        self.compose(&part, out);
        self.blank_lines = 0;
    }

    /// The line with plain spaces and without zero-width characters.
    fn blanks(&mut self, line: &str) -> String {
        let mut cleaned = String::with_capacity(line.len());
        for character in line.chars() {
            match character {
                '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => {
                    self.changes.blanks += 1;
                    cleaned.push(' ');
                }
                '\u{ad}' | '\u{200b}' | '\u{2060}' | '\u{feff}' => self.changes.blanks += 1,
                _ => cleaned.push(character),
            }
        }
        cleaned
    }

    fn compose(&mut self, line: &str, out: &mut String) {
        if is_nfc_quick(line.chars()) == IsNormalized::Yes {
            return out.push_str(line);
        }
        let composed: String = line.nfc().collect();
        if composed != line {
            let beyond_ascii = |text: &str| text.chars().filter(|character| !character.is_ascii()).count();
            // One-for-one replacements leave the number equal, and count as one change.
            self.changes.composed += beyond_ascii(line).abs_diff(beyond_ascii(&composed)).max(1) as u64;
        }
        out.push_str(&composed);
    }
}

/// Whether a character may compose with what is before it: a combining mark, or a vowel or final
/// consonant of a Korean syllable.
fn composes(character: char) -> bool {
    is_combining_mark(character) || matches!(character, '\u{1161}'..='\u{11ff}')
}

/// Counts pairs of characters that look like UTF-8 decoded as Windows-1252: the character of a lead
/// byte, then that of a continuation byte.
fn mojibake(text: &str) -> u64 {
    // The UTF-8 of every such lead character begins with this byte; `memchr` finds it fast.
    const FIRST_BYTE: u8 = 0xc3;
    let is_mojibake = |at: &usize| {
        let mut two = text[*at..].chars();
        let (Some(lead), Some(next)) = (two.next(), two.next()) else { return false };
        let follows = matches!(next, '\u{80}'..='\u{bf}' | '€' | '‚' | 'ƒ' | '„' | '…' | '†' | '‡' | '‰' | '™');
        match lead {
            'Ã' | 'Â' | 'Ð' | 'Ñ' | 'Å' | 'Ä' => follows && next != '\u{a0}',
            'â' => next == '€',
            _ => false,
        }
    };
    memchr_iter(FIRST_BYTE, text.as_bytes()).filter(is_mojibake).count() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Cleans one event, and appends its text to `cleaned`.
    fn clean(cleaner: &mut Cleaner, event: Event<'_>, cleaned: &mut String) {
        let mut sink = |event: Event<'_>| -> Result<(), Halt> {
            if let Event::Text(text) = event {
                cleaned.push_str(text);
            }
            Ok(())
        };
        cleaner.event(event, &mut sink).unwrap();
    }

    #[test]
    fn a_line_without_ascii_is_not_held_until_its_end() {
        for characters in ["\u{4e00}\u{3b1}\u{301}", "\u{1112}\u{1161}\u{11ab}"] {
            let (mut cleaner, mut cleaned) = (Cleaner::new(Clean::All), String::new());
            let piece = characters.repeat(60_000);
            clean(&mut cleaner, Event::Text("a"), &mut cleaned);
            for _ in 0..9 {
                clean(&mut cleaner, Event::Text(&piece), &mut cleaned);
                assert!(cleaner.line.len() <= LONGEST_LINE_BYTES, "{}", cleaner.line.len());
            }
            clean(&mut cleaner, Event::EndOfDocument, &mut cleaned);
            let expected: String = format!("a{}", piece.repeat(9)).nfc().collect();
            assert!(cleaned == expected, "{characters}");
        }
    }
}
