//! HTML: what a browser shows of a page as text.

use super::prose::Prose;
use crate::source::content::Content;
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader, hand_on};
use crate::source::start::Start;
use encoding_rs::Encoding;
use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};

/// The kind.
pub struct Html;

const ABOUT: About = About {
    id: "html",
    name: "HTML",
    endings: &[".html", ".htm", ".xhtml"],
    document: "a page",
    without: "scripts, styles, forms' choices, what only browsers without scripts show",
};

/// The largest page that is read, which bounds the memory that it takes.
const LARGEST_BYTES: u64 = 64 << 20;

/// How far into a page its encoding is declared.
const DECLARED_WITHIN_BYTES: usize = 1024;

impl Reader for Html {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn begins(&self, start: &Start) -> bool {
        let text = start.text().get(..14).unwrap_or_default().to_ascii_lowercase();
        start.is_unnamed() && (text == "<!doctype html" || text.starts_with("<html"))
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let page = Page::of(&content.whole_declared(LARGEST_BYTES, declared)?);
        hand_on(page.title.as_deref(), &page.text, sink)
    }
}

/// The encoding that a page declares in itself.
pub fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(DECLARED_WITHIN_BYTES)]).to_ascii_lowercase();
    let after = ["charset=", "encoding="].iter().find_map(|word| Some(&start[start.find(word)? + word.len()..]))?;
    let label = after.trim_start_matches(['"', '\'', ' ']);
    let end = label.find(['"', '\'', ' ', ';', '>', '/', '?']).unwrap_or(label.len());
    Encoding::for_label(&label.as_bytes()[..end])
}

/// What a page says.
#[derive(Debug)]
pub struct Page {
    /// What it calls itself, else its first heading.
    pub title: Option<String>,
    /// What it shows.
    pub text: String,
}

/// Elements whose content is not shown as text.
const HIDDEN: [&[u8]; 9] =
    [b"script", b"style", b"template", b"noscript", b"noframes", b"head", b"select", b"iframe", b"rp"];

/// Elements that stand in blocks of their own.
const BLOCKS: [&[u8]; 26] = [
    b"address",
    b"article",
    b"aside",
    b"blockquote",
    b"body",
    b"dl",
    b"fieldset",
    b"figcaption",
    b"figure",
    b"footer",
    b"form",
    b"h1",
    b"h2",
    b"h3",
    b"h4",
    b"h5",
    b"h6",
    b"header",
    b"hr",
    b"main",
    b"ol",
    b"p",
    b"pre",
    b"section",
    b"table",
    b"ul",
];

/// Elements that stand on lines of their own.
const LINES: [&[u8]; 13] = [
    b"br", b"caption", b"dd", b"details", b"div", b"dt", b"li", b"nav", b"option", b"summary", b"tbody", b"title",
    b"tr",
];

impl Page {
    /// Reads a page; whatever it holds is a page of some kind.
    pub fn of(text: &str) -> Self {
        let is_xml = text.trim_start().starts_with("<?xml");
        let mut emitter = DefaultEmitter::default();
        // In XHTML an element such as a title may be empty, and what follows is no part of it.
        emitter.naively_switch_states(!is_xml);
        let mut reading = Reading { is_xml, ..Reading::default() };
        for token in Tokenizer::new_with_emitter(text, emitter) {
            match token {
                Ok(Token::StartTag(tag)) => reading.start(&tag),
                Ok(Token::EndTag(tag)) => reading.end(&tag.name),
                Ok(Token::String(string)) => reading.text(&String::from_utf8_lossy(&string)),
                _ => {}
            }
        }
        let said = |text: String| Some(text).filter(|text| !text.trim().is_empty());
        Self { title: said(reading.title).or(said(reading.heading)), text: reading.prose.finish() }
    }
}

#[derive(Default)]
struct Reading {
    is_xml: bool,
    prose: Prose,
    title: String,
    heading: String,
    in_title: bool,
    /// In the first heading, or behind it.
    in_heading: Option<bool>,
    /// The outermost hidden element that is open, and how many of its name are.
    hidden: Option<(Vec<u8>, u32)>,
    preformatted: u32,
}

impl Reading {
    fn start(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        let stays_open = !(tag.self_closing && self.is_xml);
        if name == b"title" && stays_open && self.title.is_empty() {
            self.in_title = true;
        }
        if name == b"body" {
            self.hidden = None; // a head need not be closed
        }
        match &mut self.hidden {
            Some((hidden, depth)) if hidden == name => *depth += u32::from(stays_open),
            Some(_) => {}
            None if HIDDEN.contains(&name) && stays_open => self.hidden = Some((name.to_owned(), 1)),
            None => {
                if name == b"pre" {
                    self.preformatted += u32::from(stays_open);
                }
                if (name == b"h1" || name == b"h2") && self.in_heading.is_none() && stays_open {
                    self.in_heading = Some(true);
                }
                self.part(name);
            }
        }
    }

    fn end(&mut self, name: &[u8]) {
        if name == b"title" {
            self.in_title = false;
        }
        match &mut self.hidden {
            Some((hidden, depth)) if hidden == name => {
                *depth -= 1;
                if *depth == 0 {
                    self.hidden = None;
                }
            }
            Some(_) => {}
            None => {
                match name {
                    b"pre" => self.preformatted = self.preformatted.saturating_sub(1),
                    b"h1" | b"h2" => self.in_heading = self.in_heading.map(|_| false),
                    b"td" | b"th" => return self.prose.cell_of_blocks(),
                    b"tr" => return self.prose.row_of_blocks(),
                    _ => {}
                }
                self.part(name);
            }
        }
    }

    fn part(&mut self, name: &[u8]) {
        if BLOCKS.contains(&name) {
            self.prose.block();
        } else if LINES.contains(&name) {
            self.prose.line();
        }
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            self.title.push_str(text);
        } else if self.hidden.is_none() {
            if self.in_heading == Some(true) {
                self.heading.push_str(text);
            }
            match self.preformatted {
                0 => self.prose.collapsed(text),
                _ => self.prose.exactly(text),
            }
        }
    }
}
