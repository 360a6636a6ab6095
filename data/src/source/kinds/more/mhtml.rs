//! Web pages that browsers save in one file (MHTML, RFC 2557): a mail whose attachments are the
//! pictures and styles of the page.

use super::html::Page;
use super::mail::{decoded, read_beginning};
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error};
use ember_host::panics::quietly;
use mail_parser::{MessageParser, PartType};

pub struct Mhtml;

const ABOUT: About = About {
    id: "mhtml",
    name: "saved page",
    endings: &[".mht", ".mhtml"],
    document: "a page",
    without: "scripts, styles, form choices, `<noscript>` content, frames, pictures",
};

impl Reader for Mhtml {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        let text = start.text();
        start.has_generic_name() && (text.starts_with("From: <Saved by ") || text.starts_with("From: \"Saved by "))
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let bytes = read_beginning(content)?;
        let message = quietly(|| MessageParser::default().parse(&bytes)).ok().flatten();
        // The first part of HTML is the page; later ones are its frames.
        let page = message.as_ref().and_then(|message| {
            message.parts.iter().find_map(|part| match &part.body {
                PartType::Html(page) => Some(Page::of(&decoded(part, page, message, content))),
                _ => None,
            })
        });
        let Some(page) = page else {
            return Err(Error::unusable(content.name(), "is not a saved page: it has no HTML; save it as HTML").into());
        };
        emit_document(page.title.as_deref(), &page.text, sink)
    }
}
