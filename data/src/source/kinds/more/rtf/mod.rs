//! Rich Text Format (Microsoft's specification 1.9.1): the text of its paragraphs.

mod encodings;
mod group;
mod text;
mod words;

use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error};
use encoding_rs::{Encoding, WINDOWS_1252};
use encodings::{of_charset, of_code_page};
use group::Group;
use std::collections::HashMap;
use text::Text;
use words::{OPTIONAL, SKIPPED, Structure, character, structure};

pub struct Rtf;

const ABOUT: About = About {
    id: "rtf",
    name: "RTF",
    endings: &[".rtf"],
    document: "a file",
    without: "page headers and footers, comments, deleted text, styles, pictures",
};

/// The largest file that is read, to bound the memory; pictures count.
const LARGEST_BYTES: u64 = 256 << 20;

/// The deepest nesting of groups.
const DEEPEST: usize = 4096;

impl Reader for Rtf {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        start.bytes.starts_with(b"{\\rtf")
    }

    fn is_text(&self) -> bool {
        false // a picture in it may be binary
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let bytes = content.whole_bytes(LARGEST_BYTES)?;
        if !bytes.starts_with(b"{\\rtf") {
            return Err(Error::unusable(content.name(), "is named as RTF, but is something else; rename it").into());
        }
        let mut parser = Parser { rest: &bytes, groups: vec![Group::default()], ..Parser::default() };
        parser.run();
        parser.flush();
        if parser.too_deep {
            return Err(Error::unusable(content.name(), "nests deeper than any document; leave it out").into());
        }
        emit_document(Some(&parser.title), &parser.text.finish(), sink)
    }
}

#[derive(Default)]
struct Parser<'a> {
    /// The input that is still to be read.
    rest: &'a [u8],
    /// The stack of open groups, outermost first.
    groups: Vec<Group>,
    text: Text,
    title: String,
    /// Bytes of text that are still to be decoded, together because characters may take several.
    bytes: Vec<u8>,
    /// The high surrogate of an incomplete UTF-16 pair.
    high_surrogate: Option<u16>,
    /// Substitute bytes (`\uc`) that are still to be skipped.
    to_skip: usize,
    /// The encodings of fonts, by font number.
    fonts: HashMap<i32, &'static Encoding>,
    /// The number of the last font command, `\f`.
    font: i32,
    default_font: Option<i32>,
    /// Whether the document declares its code page.
    has_page: bool,
    /// Whether a group has just begun.
    group_begins: bool,
    /// Whether it began with `\*`: a reader that does not know the next word may skip the group.
    optional: bool,
    too_deep: bool,
}

impl Parser<'_> {
    fn run(&mut self) {
        while let Some((&byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            match byte {
                b'{' => {
                    self.flush();
                    if self.groups.len() >= DEEPEST {
                        self.too_deep = true;
                        return;
                    }
                    let outer = *self.group();
                    self.groups.push(outer);
                    (self.group_begins, self.optional, self.to_skip) = (true, false, 0);
                    continue;
                }
                b'}' => {
                    self.flush();
                    if self.groups.len() > 1
                        && let Some(ended) = self.groups.pop()
                    {
                        self.group_ended(&ended);
                    }
                    self.to_skip = 0;
                }
                b'\\' => {
                    let begins = std::mem::take(&mut self.group_begins);
                    self.control(begins);
                    continue;
                }
                b'\r' | b'\n' => continue,
                byte => self.byte(byte),
            }
            (self.group_begins, self.optional) = (false, false);
        }
    }

    fn group(&mut self) -> &mut Group {
        self.groups.last_mut().expect("the outermost stays")
    }

    fn byte(&mut self, byte: u8) {
        if self.to_skip > 0 {
            self.to_skip -= 1;
        } else {
            self.bytes.push(byte);
        }
    }

    /// Reads a control word or symbol, after its backslash.
    fn control(&mut self, begins: bool) {
        let Some((&first, rest)) = self.rest.split_first() else { return };
        if !first.is_ascii_alphabetic() {
            self.rest = rest;
            match first {
                b'\'' => {
                    let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                    if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                        self.rest = &rest[2..];
                        self.byte(byte);
                    }
                }
                b'*' => (self.group_begins, self.optional) = (begins, true),
                b'\\' | b'{' | b'}' => self.byte(first),
                b'~' => self.character("\u{a0}"),
                b'_' => self.character("\u{2011}"),
                b'\r' | b'\n' => self.word("par", None, false),
                _ => {}
            }
            return;
        }
        let length = self.rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let (word, rest) = self.rest.split_at(length);
        let sign = usize::from(rest.first() == Some(&b'-'));
        let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = if digits > 0 { sign + digits } else { 0 };
        let number = std::str::from_utf8(&rest[..end]).ok().and_then(|number| number.parse::<i32>().ok());
        self.rest = rest[end..].strip_prefix(b" ").unwrap_or(&rest[end..]);
        let word = std::str::from_utf8(word).expect("letters of ASCII");
        self.word(word, number, begins);
    }

    /// Handles a control word with its number; `begins`: it is the first in its group.
    fn word(&mut self, word: &str, number: Option<i32>, begins: bool) {
        let optional = std::mem::take(&mut self.optional);
        if word == "bin" {
            let bytes = number.unwrap_or(0).max(0) as usize;
            self.rest = self.rest.get(bytes..).unwrap_or_default();
            return;
        }
        if self.to_skip > 0 && word != "u" {
            self.to_skip -= 1;
            return;
        }
        // The fallback for readers that do not support the text of a shape.
        let is_fallback = word == "shprslt" && self.group().has_box;
        if begins && (is_fallback || SKIPPED.contains(&word) || (optional && !OPTIONAL.contains(&word))) {
            self.skip_group(word);
        } else {
            self.execute(word, number);
        }
    }

    /// Marks the group that this word begins as skipped: its text does not belong to the document.
    fn skip_group(&mut self, word: &str) {
        self.flush();
        let group = self.group();
        group.in_shape = matches!(word, "shpinst" | "do") && (group.in_shape || !group.skipped);
        group.in_fonts = word == "fonttbl";
        group.skipped = true;
    }

    /// Executes a control word.
    fn execute(&mut self, word: &str, number: Option<i32>) {
        match (word, number) {
            ("title", _) => {
                self.flush();
                self.group().in_title = true;
            }
            ("ansicpg", Some(page)) if self.groups.len() <= 2 => {
                self.has_page = true;
                let encoding = of_code_page(page);
                self.groups.iter_mut().for_each(|group| group.encoding = encoding);
            }
            ("mac", _) if self.groups.len() <= 2 => {
                self.groups.iter_mut().for_each(|group| group.encoding = encoding_rs::MACINTOSH);
            }
            ("deff", font) => self.default_font = font,
            ("f", Some(font)) => {
                self.font = font;
                self.use_font(Some(font));
            }
            ("plain", _) => {
                // The default font is often declared as "ANSI" despite another code page.
                let font = self.default_font;
                let is_ansi = font.and_then(|font| self.fonts.get(&font)) == Some(&WINDOWS_1252);
                self.use_font(font.filter(|_| !(is_ansi && self.has_page)));
                (self.group().hidden, self.group().deleted) = (false, false);
            }
            ("fcharset", Some(set)) if self.group().in_fonts => {
                if let Some(encoding) = of_charset(set) {
                    self.fonts.insert(self.font, encoding);
                }
            }
            ("uc", Some(count)) => self.group().substitutes = count.clamp(0, 16) as usize,
            ("u", Some(code)) => self.unicode(code as u16),
            ("v", number) => {
                self.flush();
                self.group().hidden = number != Some(0);
            }
            ("deleted", number) => {
                self.flush();
                self.group().deleted = number != Some(0);
            }
            ("footnote", _) => {
                self.flush();
                self.group().in_note = true;
                self.text.note_begins();
            }
            ("shp" | "shpgrp", _) => self.group().has_box = false,
            ("shptxt" | "dptxbxtext" | "shprslt", _) => self.box_begins(),
            _ => match (character(word), structure(word)) {
                (Some(character), _) => self.character(character),
                (None, Some(structure)) => self.structure(structure),
                (None, None) => {}
            },
        }
    }

    /// Switches to the encoding of a font, or to the document's if the font has none.
    fn use_font(&mut self, font: Option<i32>) {
        self.flush();
        let of_document = self.groups[0].encoding;
        self.group().encoding = font.and_then(|font| self.fonts.get(&font).copied()).unwrap_or(of_document);
    }

    fn box_begins(&mut self) {
        self.flush();
        let group = self.group();
        group.skipped &= !group.in_shape;
        if !group.skipped {
            group.has_box = true;
            group.boxes += 1;
            let group = *group;
            self.text.box_begins(&group);
        }
    }

    /// Handles the end of a group, which may also end a text box.
    fn group_ended(&mut self, ended: &Group) {
        let group = self.group();
        group.has_box |= ended.has_box;
        if ended.boxes > group.boxes {
            let group = *group;
            self.text.box_ended(&group);
        }
    }

    fn structure(&mut self, structure: Structure) {
        self.flush();
        let group = *self.group();
        if !group.is_skipped() {
            self.text.structure(&group, structure);
        }
    }

    fn unicode(&mut self, unit: u16) {
        let units = self.high_surrogate.take().into_iter().chain([unit]);
        if (0xd800..0xdc00).contains(&unit) {
            self.high_surrogate = Some(unit);
        } else {
            let text: String = char::decode_utf16(units).map(|character| character.unwrap_or('\u{fffd}')).collect();
            self.character(&text);
        }
        self.to_skip = self.group().substitutes;
    }

    fn character(&mut self, text: &str) {
        self.flush();
        self.add(text);
    }

    fn flush(&mut self) {
        if !self.bytes.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            let encoding = self.group().encoding;
            self.add(&encoding.decode_without_bom_handling(&bytes).0);
        }
    }

    fn add(&mut self, text: &str) {
        let group = *self.group();
        if group.in_title {
            self.title.push_str(text);
        } else if !group.is_skipped() {
            self.text.add(&group, text);
        }
    }
}
