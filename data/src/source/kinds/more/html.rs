//! HTML: the text that a browser shows.

use super::prose::Prose;
use crate::source::compression::Compression;
use crate::source::content::Content;
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::start::Start;
use encoding_rs::Encoding;
use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use regex::Regex;
use std::sync::LazyLock;

pub struct Html;

const ABOUT: About = About {
    id: "html",
    name: "HTML",
    endings: &[".html", ".htm", ".xhtml"],
    document: "a page",
    without: "scripts, styles, form choices, `<noscript>` content",
};

/// The largest page that is read, to bound the memory.
const LARGEST_BYTES: u64 = 64 << 20;

/// Bytes at the start of a page that are searched for the declaration of its encoding.
const DECLARED_WITHIN_BYTES: usize = 1024;

impl Reader for Html {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        let text = start.text().get(..14).unwrap_or_default().to_ascii_lowercase();
        start.has_generic_name() && (text == "<!doctype html" || text.starts_with("<html"))
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let text = content.whole_declared(LARGEST_BYTES, declared_encoding)?;
        let name = content.name().to_lowercase();
        let page = match Compression::of_name(&name).1.ends_with(".xhtml") {
            true => Page::of_xhtml(&text),
            false => Page::of(&text),
        };
        emit_document(page.title.as_deref(), &page.text, sink)
    }
}

/// The encoding that a page declares.
pub fn declared_encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(DECLARED_WITHIN_BYTES)]).to_ascii_lowercase();
    let after = ["charset=", "encoding="].iter().find_map(|word| Some(&start[start.find(word)? + word.len()..]))?;
    let label = after.trim_start_matches(['"', '\'', ' ']);
    let end = label.find(['"', '\'', ' ', ';', '>', '/', '?']).unwrap_or(label.len());
    Encoding::for_label(&label.as_bytes()[..end])
}

/// The text extracted from a page.
#[derive(Debug)]
pub struct Page {
    /// Its `<title>`, else its first heading.
    pub title: Option<String>,
    /// The text that it shows.
    pub text: String,
}

/// Elements whose content is not shown as text.
const HIDDEN: [&[u8]; 8] = [b"script", b"style", b"template", b"noscript", b"noframes", b"select", b"iframe", b"rp"];

/// Elements that are separate blocks.
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

/// Elements that are on separate lines.
const LINES: [&[u8]; 13] = [
    b"br", b"caption", b"dd", b"details", b"div", b"dt", b"li", b"nav", b"option", b"summary", b"tbody", b"title",
    b"tr",
];

/// Elements of raw text that XHTML may write as empty: `<title/>`. They are removed, since HTML's
/// tokenizer would take all that follows for their content.
static EMPTY: LazyLock<Regex> = LazyLock::new(|| {
    let names = "title|textarea|style|script|xmp|iframe|noembed|noframes|noscript|plaintext";
    Regex::new(&format!(r"(?i)<(?:{names})(?:\s[^<>]*)?/>")).expect("the pattern is valid")
});

/// Whether a page has an XML declaration.
fn has_xml_declaration(text: &str) -> bool {
    text.trim_start().starts_with("<?xml")
}

impl Page {
    /// Extracts the text of a page; any input is accepted.
    pub fn of(text: &str) -> Self {
        Self::read(text, Extractor { is_xml: has_xml_declaration(text), ..Extractor::default() })
    }

    /// Extracts the text of a mail in HTML, with `> ` before quoted lines, as in plain mails.
    pub fn of_mail(text: &str) -> Self {
        Self::read(text, Extractor { is_xml: has_xml_declaration(text), is_mail: true, ..Extractor::default() })
    }

    /// Extracts the text of a page that is XHTML according to its file. Its own doctype is ignored:
    /// many pages declare XHTML, but browsers parse them as HTML.
    pub fn of_xhtml(text: &str) -> Self {
        Self::read(text, Extractor { is_xml: true, ..Extractor::default() })
    }

    fn read(text: &str, mut extractor: Extractor) -> Self {
        let text = if extractor.is_xml { EMPTY.replace_all(text, "") } else { text.into() };
        let mut emitter = DefaultEmitter::default();
        emitter.naively_switch_states(true);
        for token in Tokenizer::new_with_emitter(&*text, emitter) {
            match token {
                Ok(Token::StartTag(tag)) => extractor.start(&tag),
                Ok(Token::EndTag(tag)) => extractor.end(&tag.name),
                Ok(Token::String(string)) => extractor.text(&String::from_utf8_lossy(&string)),
                _ => {}
            }
        }
        let non_empty = |text: String| Some(text).filter(|text| !text.trim().is_empty());
        Self { title: non_empty(extractor.title).or(non_empty(extractor.heading)), text: extractor.prose.finish() }
    }
}

#[derive(Default)]
struct Extractor {
    is_xml: bool,
    prose: Prose,
    title: String,
    heading: String,
    in_title: bool,
    /// Whether the first heading is open; `None` before it.
    in_heading: Option<bool>,
    /// The name of the outermost open hidden element, and the number of open elements of this name.
    hidden: Option<(Vec<u8>, u32)>,
    preformatted: u32,
    /// Whether a table cell is open; its end tag may be omitted.
    in_cell: bool,
    is_mail: bool,
    /// The name of a mail's open quotation element, and the number of open elements of this name.
    quotation: Option<(Vec<u8>, u32)>,
}

/// The prefix of quoted lines in plain mails.
const QUOTED: &str = "> ";

/// The name of the element whose end tag ends the quotation that begins with `tag`; `None` if none
/// begins. Outlook marks only the beginning: the empty name never ends. Gmail's `div` does not
/// count, because it may contain answers between quotations.
fn quotation(tag: &StartTag<()>) -> Option<Vec<u8>> {
    let has = |attribute: &[u8], word: &str| {
        let value = tag.attributes.get(attribute).map(|value| String::from_utf8_lossy(value));
        value.is_some_and(|value| value.split_whitespace().any(|one| one.eq_ignore_ascii_case(word)))
    };
    let is_quotation = tag.name == b"blockquote" && (has(b"type", "cite") || has(b"class", "gmail_quote"));
    match is_quotation {
        true => Some(tag.name.to_vec()),
        false => has(b"id", "divRplyFwdMsg").then(Vec::new),
    }
}

impl Extractor {
    fn start(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        let stays_open = !(tag.self_closing && self.is_xml);
        if name == b"title" && stays_open && self.title.is_empty() {
            self.in_title = true;
        }
        if name == b"body" {
            self.hidden = None; // the body ends whatever is open in the head
        }
        self.end_parenthesis(name);
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
                self.start_of_table(name);
                self.separate(name);
                if self.is_mail && stays_open {
                    self.start_of_quotation(tag);
                }
            }
        }
    }

    fn end(&mut self, name: &[u8]) {
        if name == b"title" {
            self.in_title = false;
        }
        self.end_parenthesis(name);
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
                    b"td" | b"th" => {
                        self.in_cell = false;
                        return self.prose.end_cell();
                    }
                    b"tr" => {
                        self.in_cell = false;
                        return self.prose.end_row();
                    }
                    b"table" if self.in_cell => {
                        self.in_cell = false;
                        self.prose.end_row();
                    }
                    _ => {}
                }
                self.separate(name);
                self.end_of_quotation(name);
            }
        }
    }

    /// Begins a quotation, or counts an element of the same name inside the open one.
    fn start_of_quotation(&mut self, tag: &StartTag<()>) {
        match &mut self.quotation {
            Some((name, open)) => *open += u32::from(*name == *tag.name),
            None => {
                self.quotation = quotation(tag).map(|name| (name, 1));
                if self.quotation.is_some() {
                    self.prose.set_line_prefix(QUOTED);
                }
            }
        }
    }

    fn end_of_quotation(&mut self, ended: &[u8]) {
        let Some((name, open)) = &mut self.quotation else { return };
        *open -= u32::from(*name == ended);
        if *open == 0 {
            self.quotation = None;
            self.prose.set_line_prefix("");
        }
    }

    /// Ends a ruby parenthesis (`<rp>`) without an end tag when the next element begins or ends.
    fn end_parenthesis(&mut self, next: &[u8]) {
        let is_open = self.hidden.as_ref().is_some_and(|(hidden, _)| hidden == b"rp");
        if is_open && (matches!(next, b"rp" | b"rt" | b"ruby") || BLOCKS.contains(&next)) {
            self.hidden = None;
        }
    }

    /// Ends a cell or row without an end tag when the next begins.
    fn start_of_table(&mut self, name: &[u8]) {
        let is_cell = matches!(name, b"td" | b"th");
        if self.in_cell && is_cell {
            self.prose.end_cell();
        } else if self.in_cell && name == b"tr" {
            self.prose.end_row();
        }
        if is_cell || matches!(name, b"tr" | b"table") {
            self.in_cell = is_cell;
        }
        if is_cell {
            self.prose.begin_cell();
        }
    }

    fn separate(&mut self, name: &[u8]) {
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
                0 => self.prose.push_collapsed(text),
                _ => self.prose.push(text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_end_tags_are_left_out_of_is_shown() {
        for (page, text) in [
            ("<head><title>T</title><p>One<p>two", "One\n\ntwo\n"),
            ("<head><script>a < b</script><style>p {}</style><body>One", "One\n"),
            ("<p>A <ruby>漢<rp>(<rt>kan<rp>)</ruby> and more.<p>Two", "A 漢kan and more.\n\nTwo\n"),
            ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>!", "漢kan!\n"),
            ("<table><tr><td>Anna<td>12<tr><td>Bob<td>7</table>End", "Anna\t12\nBob\t7\n\nEnd\n"),
            ("<table><tr><td>Anna</td><td>12</td></tr><tr><td>Bob</td></tr></table>", "Anna\t12\nBob\n"),
            ("<p>In<table><tr><th></th><th>A<tr><td><p></p></td><td>1</td></tr></table>", "In\n\nA\n1\n"),
            ("<table><tr><td>A<td></table>End", "A\n\nEnd\n"),
            ("<p>In<table><tr><th></th><th> </th></tr><tr><td>A</td><td>1</td></tr></table>", "In\n\nA\t1\n"),
            ("<table><tr><td><p>One<td><p>1<p>2<td> <td>3</table><p>End", "One\t1\n\n2\t3\n\nEnd\n"),
        ] {
            assert_eq!(Page::of(page).text, text, "{page}");
        }
        assert_eq!(Page::of("<head><title>T</title><p>One").title.as_deref(), Some("T"));
    }

    #[test]
    fn what_a_mail_quotes_is_marked_as_in_a_plain_one() {
        let cite =
            "<p>Fine.<blockquote type=\"cite\"><div>One<blockquote>two</blockquote><pre>a\nb</pre></blockquote><p>Me";
        let gmail = "Fine.<div class=\"gmail_quote\">Ann wrote:<br><blockquote class='x gmail_quote'>One</blockquote>\
                     <div>Mine.</div></div>";
        let outlook =
            "<div>Fine.<hr><div id=divRplyFwdMsg><b>From:</b> Ann<br><b>Sent:</b> Monday</div><div>One</div></div>Two";
        for (page, text) in [
            (cite, "Fine.\n\n> One\n\n> two\n\n> a\n> b\n\nMe\n"),
            (gmail, "Fine.\nAnn wrote:\n\n> One\n\nMine.\n"),
            (outlook, "Fine.\n\n> From: Ann\n> Sent: Monday\n> One\n> Two\n"),
            ("A<blockquote>poem</blockquote>", "A\n\npoem\n"),
        ] {
            assert_eq!(Page::of_mail(page).text, text, "{page}");
            assert_eq!(Page::of(page).text, text.replace("> ", ""), "{page}");
        }
    }

    #[test]
    fn empty_elements_of_xhtml_hold_nothing_of_what_follows() {
        let page = "<html xmlns=\"http://www.w3.org/1999/xhtml\"><head><title/><script src=\"a.js\"/></head>\
                    <body><p>All of it</p></body></html>";
        assert_eq!(Page::of_xhtml(page).text, "All of it\n");
        assert_eq!(Page::of(&format!("<?xml version=\"1.0\"?>{page}")).text, "All of it\n");
        assert_eq!(Page::of_mail(&format!("<?xml version=\"1.0\"?>{page}")).text, "All of it\n");
        for script in ["for (i=0;i<n;i++) { a(); }", "<![CDATA[ if (a > 0) b(\"<script src='x.js'>\"); ]]>"] {
            let page = format!("<body><p>One</p><script>{script}</script><p>Two</p></body>");
            assert_eq!(Page::of_xhtml(&page).text, "One\n\nTwo\n");
        }
    }
}
