//! OpenDocument text (ISO/IEC 26300), as a zip package or one XML file: the body, then the notes.

use super::package::{Package, has_mimetype};
use super::prose::Prose;
use super::xml::{self, Node, attribute};
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error};

/// The format as a zip package.
pub struct Odt;

const ABOUT: About = About {
    id: "odt",
    name: "OpenDocument",
    endings: &[".odt", ".ott"],
    document: "a file",
    without: "page headers and footers, comments, deleted text, pictures",
};

const BODY: &str = "content.xml";

/// Elements whose text does not belong to the document: deleted text, comments, the numbers of
/// notes, forms, pictures.
const SKIPPED: [&str; 5] = ["tracked-changes", "annotation", "note-citation", "forms", "binary-data"];

/// The most spaces that `<text:s>` elements may add in a document: a few bytes could request a huge
/// run.
const MAX_SPACES: usize = 1 << 20;

impl Reader for Odt {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        has_mimetype(start, b"application/vnd.oasis.opendocument.text")
    }

    fn is_text(&self) -> bool {
        false
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let package = Package::open(content)?;
        let mut has_part = false;
        let document = Document::of(|visit| {
            has_part = package.for_each_node(BODY, visit)?;
            Ok(())
        })?;
        if !has_part {
            return Err(package.missing(BODY));
        }
        let title = package.first_text("meta.xml", "title").unwrap_or_default();
        emit_document(title.as_deref(), &document.text, sink)
    }
}

/// The format as one XML file.
pub struct Flat;

const FLAT: About = About {
    id: "fodt",
    name: "flat OpenDocument",
    endings: &[".fodt"],
    document: "a file",
    without: "page headers and footers, comments, deleted text, pictures",
};

/// The largest flat file that is read, to bound the memory.
const LARGEST_BYTES: u64 = 64 << 20;

impl Reader for Flat {
    fn about(&self) -> &About {
        &FLAT
    }

    fn matches(&self, start: &Start) -> bool {
        start.flat_opendocument() == Some("text")
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let whole = content.whole_text(LARGEST_BYTES)?;
        let document = Document::of(|visit| {
            xml::for_each_node(&whole, visit).map_err(|error| {
                let what = format!("{} as OpenDocument; it is damaged, save it again", content.name());
                Error::Unreadable { what, source: error.into() }
            })
        })?;
        if !document.has_body {
            return Err(Error::unusable(content.name(), "is not an OpenDocument text; save it again").into());
        }
        emit_document(Some(&document.title), &document.text, sink)
    }
}

/// The text extracted from a document.
struct Document {
    /// The title before the body of a flat file; in a package it is in another part.
    title: String,
    text: String,
    has_body: bool,
}

impl Document {
    /// Extracts the text from the XML nodes that `nodes` passes to its callback.
    fn of(nodes: impl FnOnce(&mut dyn FnMut(Node<'_>)) -> Result<(), Error>) -> Result<Self, Error> {
        let mut extractor = Extractor::default();
        nodes(&mut |node| extractor.visit(node))?;
        let Extractor { title, mut body, notes, boxes, has_body, .. } = extractor;
        body.append_blocks(boxes);
        body.append_blocks(notes);
        Ok(Self { title, text: body.finish(), has_body })
    }
}

/// The state while the nodes of a document are visited.
#[derive(Default)]
struct Extractor {
    title: String,
    body: Prose,
    notes: Prose,
    /// The text of boxes, until the end of the paragraph that contains them.
    boxes: Prose,
    has_body: bool,
    in_body: bool,
    in_title: bool,
    /// Counts of open elements: skipped ones, titles and descriptions of pictures, notes, boxes,
    /// paragraphs.
    skipped: u32,
    picture_titles: u32,
    in_note: u32,
    in_box: u32,
    paragraphs: u32,
    /// The spaces from `<text:s>` so far.
    spaces: usize,
}

impl Extractor {
    fn visit(&mut self, node: Node<'_>) {
        match node {
            Node::Start("body", _) => (self.in_body, self.has_body) = (true, true),
            Node::End("body") => self.in_body = false,
            Node::Start("title", tag) if !self.in_body && tag.name().into_inner() == "dc:title" => self.in_title = true,
            Node::End("title") if self.in_title => self.in_title = false,
            Node::Text(text) if self.in_title => self.title.push_str(text),
            _ if !self.in_body => {}
            Node::Start(name, _) if SKIPPED.contains(&name) => self.skipped += 1,
            Node::End(name) if SKIPPED.contains(&name) => self.skipped -= 1,
            // A text field may have this name, too, so the prefix decides. Inside a picture's title
            // every start tag counts, because an end tag comes without its prefix.
            Node::Start("title" | "desc", tag)
                if self.picture_titles > 0 || tag.name().into_inner().starts_with("svg:") =>
            {
                self.picture_titles += 1;
            }
            Node::End("title" | "desc") if self.picture_titles > 0 => self.picture_titles -= 1,
            _ if self.skipped > 0 || self.picture_titles > 0 => {}
            Node::Start("note-body", _) => self.in_note += 1,
            Node::End("note-body") => self.in_note -= 1,
            Node::Start("text-box", _) => {
                self.in_box += 1;
                self.boxes.block();
            }
            Node::End("text-box") => {
                self.in_box -= 1;
                if self.paragraphs == 0 {
                    self.place_boxes();
                }
            }
            Node::Start("p" | "h", _) => self.paragraphs += 1,
            Node::End("p" | "h") => {
                self.paragraphs -= 1;
                self.prose().block();
                self.place_boxes();
            }
            Node::Text(text) if self.paragraphs > 0 => self.prose().push_collapsed(text),
            Node::Start("s", tag) => {
                let requested: usize = attribute(tag, "c").and_then(|count| count.parse().ok()).unwrap_or(1);
                let count = requested.min(MAX_SPACES - self.spaces);
                self.spaces += count;
                self.prose().push(&" ".repeat(count));
            }
            Node::Start("tab", _) => self.prose().push("\t"),
            Node::Start("line-break", _) => self.prose().line(),
            Node::Start("table-cell", _) => self.prose().begin_cell(),
            Node::End("table-cell") => self.prose().end_cell(),
            Node::End("table-row") => self.prose().end_row(),
            Node::Start("table", _) | Node::End("table") => self.prose().block(),
            _ => {}
        }
    }

    /// The destination of text.
    fn prose(&mut self) -> &mut Prose {
        if self.in_box > 0 { &mut self.boxes } else { self.outside_boxes() }
    }

    /// The destination of text outside boxes.
    fn outside_boxes(&mut self) -> &mut Prose {
        if self.in_note > 0 { &mut self.notes } else { &mut self.body }
    }

    /// Adds the text of boxes after their paragraph, once all of them have ended.
    fn place_boxes(&mut self) {
        if self.in_box == 0 {
            let boxes = std::mem::take(&mut self.boxes);
            self.outside_boxes().append_blocks(boxes);
        }
    }
}
