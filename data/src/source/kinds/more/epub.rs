//! E-books (EPUB 2 and 3): the chapters in reading order.

use super::html::{Page, declared_encoding};
use super::package::{Package, has_mimetype};
use super::xml::{Node, attribute};
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::start::Start;
use crate::source::{content::Content, encoding, error::Error};
use percent_encoding::percent_decode_str;
use std::{cell::Cell, collections::BTreeMap, collections::BTreeSet};

pub struct Epub;

const ABOUT: About = About {
    id: "epub",
    name: "EPUB",
    endings: &[".epub"],
    document: "a chapter: a file in the book, in reading order",
    without: "the table of contents, styles, pictures",
};

const CONTAINER: &str = "META-INF/container.xml";

impl Reader for Epub {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        has_mimetype(start, b"application/epub+zip")
    }

    fn is_text(&self) -> bool {
        false
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let package = Package::open(content)?;
        let mut root = None;
        package.for_each_node(CONTAINER, &mut |node| {
            if let Node::Start("rootfile", tag) = node {
                root = root.take().or_else(|| attribute(tag, "full-path"));
            }
        })?;
        let Some(root) = root else { return Err(package.missing(CONTAINER)) };
        let title = package.first_text(&root, "title")?;
        let chapters = chapters(&package, &root)?;
        if chapters.is_empty() {
            return Err(package.missing(&root));
        }
        let locked = locked(&package)?;
        if chapters.iter().any(|chapter| locked.contains(chapter)) {
            let what = "is copy-protected: its chapters are encrypted; give one that is not";
            return Err(Error::unusable(content.name(), what).into());
        }
        for (number, chapter) in chapters.iter().enumerate() {
            // A chapter that is listed but missing is skipped.
            let Some(bytes) = package.bytes(chapter)? else { continue };
            let text = encoding::text_of(&bytes, declared_encoding(&bytes), &Cell::new(None));
            let text = text.map_err(|error| package.damaged(chapter, error.into()))?;
            // Nearly all chapters are XHTML, and e-book readers parse the others as XHTML, too.
            let page = Page::of_xhtml(&text);
            content.report_progress(number as u64, chapters.len() as u64);
            emit_document(page.title.as_deref().or(title.as_deref()), &page.text, sink)?;
        }
        Ok(())
    }
}

/// The parts that are chapters, in reading order.
fn chapters(package: &Package<'_>, root: &str) -> Result<Vec<String>, Error> {
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (mut parts, mut chapters) = (BTreeMap::new(), Vec::new());
    package.for_each_node(root, &mut |node| match node {
        Node::Start("item", tag) => {
            let is_contents = attribute(tag, "properties").is_some_and(|all| all.split(' ').any(|one| one == "nav"));
            let is_page = attribute(tag, "media-type").is_some_and(|kind| kind.contains("html"));
            if let (true, Some(id), Some(path)) =
                (is_page && !is_contents, attribute(tag, "id"), attribute(tag, "href"))
            {
                parts.insert(id, resolved(folder, &path));
            }
        }
        Node::Start("itemref", tag) => chapters.extend(attribute(tag, "idref")),
        _ => {}
    })?;
    // `remove` yields each chapter only once, however often it is listed.
    Ok(chapters.iter().filter_map(|id| parts.remove(id)).collect())
}

/// The encrypted parts. Often these are only fonts, and the book can be read.
fn locked(package: &Package<'_>) -> Result<BTreeSet<String>, Error> {
    let mut locked = BTreeSet::new();
    package.for_each_node("META-INF/encryption.xml", &mut |node| {
        if let Node::Start("CipherReference", tag) = node {
            locked.extend(attribute(tag, "URI").map(|path| resolved("", &path)));
        }
    })?;
    Ok(locked)
}

/// Resolves a part's path, which may be percent-encoded, relative to `folder`.
fn resolved(folder: &str, path: &str) -> String {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
