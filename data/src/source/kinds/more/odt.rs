//! OpenDocument text (ISO/IEC 26300), as a package or as one file: the body, then its notes.

use super::package::{Package, is_of_type};
use super::prose::Prose;
use super::xml::{self, Node, attribute};
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader, hand_on};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error};

/// The kind.
pub struct Odt;

const ABOUT: About = About {
    id: "odt",
    name: "OpenDocument",
    endings: &[".odt", ".ott"],
    document: "a file",
    without: "page headers and footers, comments, deleted text, pictures",
};

const BODY: &str = "content.xml";

/// Elements whose text is not the document's: what was deleted, comments, the numbers of notes,
/// pictures.
const SKIPPED: [&str; 5] = ["tracked-changes", "annotation", "note-citation", "forms", "binary-data"];

/// A document has no more spaces than these in runs, whatever it says: a few bytes of it could say
/// very many.
const MOST_SPACES: usize = 1 << 20;

impl Reader for Odt {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn begins(&self, start: &Start) -> bool {
        is_of_type(start, b"application/vnd.oasis.opendocument.text")
    }

    fn is_text(&self) -> bool {
        false
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let package = Package::open(content)?;
        let mut has_part = false;
        let document = Document::of(|visit| {
            has_part = package.each(BODY, visit)?;
            Ok(())
        })?;
        if !has_part {
            return Err(package.lacking(BODY));
        }
        let title = package.first("meta.xml", "title").unwrap_or_default();
        hand_on(title.as_deref(), &document.text, sink)
    }
}

/// The same as one file of XML.
pub struct Flat;

const FLAT: About = About {
    id: "fodt",
    name: "flat OpenDocument",
    endings: &[".fodt"],
    document: "a file",
    without: "page headers and footers, comments, deleted text, pictures",
};

/// The largest flat file that is read, which bounds the memory that it takes.
const LARGEST_BYTES: u64 = 64 << 20;

impl Reader for Flat {
    fn about(&self) -> &About {
        &FLAT
    }

    fn begins(&self, start: &Start) -> bool {
        let root = start.text().strip_prefix("<?xml").and_then(|text| text.split_once("?>"));
        root.is_some_and(|(_, root)| {
            root.trim_start().starts_with("<office:document ") && root.contains("opendocument.text\"")
        })
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let whole = content.whole_text(LARGEST_BYTES)?;
        let document = Document::of(|visit| {
            xml::each(&whole, visit).map_err(|error| {
                let what = format!("{} as OpenDocument; it is damaged, save it again", content.name());
                Error::Unreadable { what, source: error.into() }
            })
        })?;
        if !document.has_body {
            return Err(Error::unusable(content.name(), "is no document of OpenDocument's; save it again").into());
        }
        hand_on(Some(&document.title), &document.text, sink)
    }
}

/// What a document says.
#[derive(Default)]
struct Document {
    /// What stands before its body; in a package another part has it.
    title: String,
    text: String,
    has_body: bool,
}

impl Document {
    /// Reads the parts of a document that `nodes` hands on.
    fn of(nodes: impl FnOnce(&mut dyn FnMut(Node<'_>)) -> Result<(), Error>) -> Result<Self, Error> {
        let (mut body, mut notes, mut boxes) = (Prose::default(), Prose::default(), Prose::default());
        let (mut skipped, mut in_note, mut in_box, mut paragraphs) = (0u32, 0u32, 0u32, 0u32);
        let (mut in_body, mut in_title, mut in_picture_title) = (false, false, false);
        let mut spaces_left = MOST_SPACES;
        let mut document = Self::default();
        nodes(&mut |node| {
            let around = if in_note > 0 { &mut notes } else { &mut body };
            // A box comes behind the paragraph that it stands in.
            let prose = if in_box > 0 { &mut boxes } else { &mut *around };
            match node {
                Node::Start("body", _) => (in_body, document.has_body) = (true, true),
                Node::End("body") => in_body = false,
                Node::Start("title", tag) if !in_body && tag.name().into_inner() == "dc:title" => in_title = true,
                Node::End("title") if in_title => in_title = false,
                Node::Text(text) if in_title => document.title.push_str(text),
                _ if !in_body => {}
                Node::Start(name, _) if SKIPPED.contains(&name) => skipped += 1,
                Node::End(name) if SKIPPED.contains(&name) => skipped -= 1,
                // A picture's title and description; a field of the text may be called so, too.
                Node::Start("title" | "desc", tag) if tag.name().into_inner().starts_with("svg:") => {
                    in_picture_title = true;
                }
                Node::End("title" | "desc") => in_picture_title = false,
                _ if skipped > 0 || in_picture_title => {}
                Node::Start("note-body", _) => in_note += 1,
                Node::End("note-body") => in_note -= 1,
                Node::Start("text-box", _) => {
                    in_box += 1;
                    boxes.block();
                }
                Node::End("text-box") => {
                    in_box -= 1;
                    if in_box == 0 && paragraphs == 0 {
                        around.blocks_of(std::mem::take(&mut boxes));
                    }
                }
                Node::Start("p" | "h", _) => paragraphs += 1,
                Node::End("p" | "h") => {
                    paragraphs -= 1;
                    prose.block();
                    if in_box == 0 {
                        around.blocks_of(std::mem::take(&mut boxes));
                    }
                }
                Node::Text(text) if paragraphs > 0 => prose.collapsed(text),
                Node::Start("s", tag) => {
                    let count = attribute(tag, "c").and_then(|count| count.parse().ok()).unwrap_or(1).min(spaces_left);
                    spaces_left -= count;
                    prose.exactly(&" ".repeat(count));
                }
                Node::Start("tab", _) => prose.exactly("\t"),
                Node::Start("line-break", _) => prose.line(),
                Node::Start("table-cell", _) => prose.begin_cell(),
                Node::End("table-cell") => prose.cell_of_blocks(),
                Node::End("table-row") => prose.row_of_blocks(),
                Node::Start("table", _) | Node::End("table") => prose.block(),
                _ => {}
            }
        })?;
        body.blocks_of(boxes);
        body.blocks_of(notes);
        document.text = body.finish();
        Ok(document)
    }
}
