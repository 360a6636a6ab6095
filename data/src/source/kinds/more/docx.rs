//! Word's files (ECMA-376, WordprocessingML): the body, then its footnotes and endnotes.

use super::package::{Package, first_parts};
use super::prose::Prose;
use super::xml::{Node, attribute};
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error};

pub struct Docx;

const ABOUT: About = About {
    id: "docx",
    name: "Word",
    endings: &[".docx", ".docm", ".dotx"],
    document: "a file",
    without: "page headers and footers, comments, deleted text, pictures",
};

const BODY: &str = "word/document.xml";

impl Reader for Docx {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        // A zip of texts may have a folder of this name, too.
        let is_xml = |name: &[u8]| name.ends_with(b".xml") || name.ends_with(b".rels");
        first_parts(start).any(|(name, _)| name.starts_with(b"word/") && is_xml(name))
    }

    fn is_text(&self) -> bool {
        false
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let package = Package::open(content)?;
        let mut prose = Prose::default();
        if !add(&package, BODY, &mut prose)? && !add(&package, &body(&package)?, &mut prose)? {
            return Err(package.missing(BODY));
        }
        for notes in ["word/footnotes.xml", "word/endnotes.xml"] {
            add(&package, notes, &mut prose)?;
        }
        let title = package.first_text("docProps/core.xml", "title").unwrap_or_default();
        emit_document(title.as_deref(), &prose.finish(), sink)
    }
}

/// The name of the main part according to the package; some programs do not use the usual one.
fn body(package: &Package<'_>) -> Result<String, Error> {
    let mut body = String::new();
    package.for_each_node("_rels/.rels", &mut |node| {
        if let Node::Start("Relationship", tag) = node
            && attribute(tag, "Type").is_some_and(|kind| kind.ends_with("/officeDocument"))
        {
            body = attribute(tag, "Target").unwrap_or_default().trim_start_matches('/').to_owned();
        }
    })?;
    Ok(body)
}

/// Elements whose text does not belong to the document: moved away, a fallback for older readers,
/// deleted, earlier paragraph properties.
const SKIPPED: [&str; 4] = ["moveFrom", "Fallback", "del", "pPrChange"];

/// Adds the text of a part; returns whether the part exists.
fn add(package: &Package<'_>, part: &str, prose: &mut Prose) -> Result<bool, Error> {
    let (mut skipped, mut in_text, mut in_box, mut boxes) = (0u32, false, 0u32, Prose::default());
    package.for_each_node(part, &mut |node| {
        // The text of a box comes after the paragraph that contains the box.
        let target = if in_box > 0 { &mut boxes } else { &mut *prose };
        match node {
            Node::Start(name, _) if SKIPPED.contains(&name) => skipped += 1,
            Node::End(name) if SKIPPED.contains(&name) => skipped -= 1,
            _ if skipped > 0 => {}
            Node::Start("t", _) => in_text = true,
            Node::End("t") => in_text = false,
            Node::Text(text) if in_text => target.push(text),
            Node::Start("tab", tag) if tag.attributes_raw().is_empty() => target.push("\t"),
            Node::Start("br" | "cr", _) => target.line(),
            Node::Start("noBreakHyphen", _) => target.push("\u{2011}"),
            Node::Start("txbxContent", _) => {
                in_box += 1;
                boxes.block();
            }
            Node::End("txbxContent") => in_box -= 1,
            Node::End("p") => {
                target.block();
                if in_box == 0 {
                    prose.append_blocks(std::mem::take(&mut boxes));
                }
            }
            Node::Start("tc", _) => target.begin_cell(),
            Node::End("tc") => target.end_cell(),
            Node::End("tr") => target.end_row(),
            Node::Start("tbl", _) | Node::End("tbl") => target.block(),
            _ => {}
        }
    })
}
