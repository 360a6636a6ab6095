//! OpenDocument text (ISO/IEC 26300): the body, then its notes.

use super::package::{Package, is_of_type};
use super::prose::Prose;
use super::xml::{Node, attribute};
use crate::source::content::Content;
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader, hand_on};
use crate::source::start::Start;

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

/// Elements whose text is not the document's: what was deleted, comments, the numbers of notes.
const SKIPPED: [&str; 4] = ["tracked-changes", "annotation", "note-citation", "forms"];

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
        let (mut body, mut notes, mut boxes) = (Prose::default(), Prose::default(), Prose::default());
        let (mut skipped, mut in_note, mut in_box, mut paragraphs) = (0u32, 0u32, 0u32, 0u32);
        let (mut in_body, mut in_picture_title) = (false, false);
        let mut spaces_left = MOST_SPACES;
        let found = package.each(BODY, &mut |node| {
            let around = if in_note > 0 { &mut notes } else { &mut body };
            // A box comes behind the paragraph that it stands in.
            let prose = if in_box > 0 { &mut boxes } else { &mut *around };
            match node {
                Node::Start("body", _) => in_body = true,
                Node::End("body") => in_body = false,
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
        if !found {
            return Err(package.lacking(BODY));
        }
        body.blocks_of(boxes);
        body.blocks_of(notes);
        let title = package.first("meta.xml", "title").unwrap_or_default();
        hand_on(title.as_deref(), &body.finish(), sink)
    }
}
