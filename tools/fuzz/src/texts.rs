//! Files of users' texts in all formats, compressed or not.

use std::sync::atomic::AtomicU64;

use ember_data::source::{self, Event, Listing, ReadOptions};

use crate::harness::{Harness, check_file_error};
use crate::{scratch, zip};

/// Maximum length of an input: texts are read as streams, so short ones reach the same code.
const LONGEST: usize = 1 << 14;

pub const HARNESSES: &[Harness] = &[
    Harness { name: "text", longest: LONGEST, read: |bytes| text("text.txt", bytes) },
    Harness { name: "markdown", longest: LONGEST, read: |bytes| text("text.md", bytes) },
    Harness { name: "jsonl", longest: LONGEST, read: |bytes| text("text.jsonl", bytes) },
    Harness { name: "parquet", longest: LONGEST, read: |bytes| text("text.parquet", bytes) },
    Harness { name: "whatsapp", longest: LONGEST, read: |bytes| text("text_chat.txt", bytes) },
    Harness { name: "csv", longest: LONGEST, read: |bytes| text("text.csv", bytes) },
    Harness { name: "docx", longest: LONGEST, read: docx },
    Harness { name: "odt", longest: LONGEST, read: odt },
    Harness { name: "fodt", longest: LONGEST, read: |bytes| text("text.fodt", bytes) },
    Harness { name: "rtf", longest: LONGEST, read: |bytes| text("text.rtf", bytes) },
    Harness { name: "epub", longest: LONGEST, read: epub },
    Harness { name: "pdf", longest: LONGEST, read: |bytes| text("text.pdf", bytes) },
    Harness { name: "html", longest: LONGEST, read: |bytes| text("text.html", bytes) },
    Harness { name: "mhtml", longest: LONGEST, read: |bytes| text("text.mhtml", bytes) },
    Harness { name: "latex", longest: LONGEST, read: |bytes| text("text.tex", bytes) },
    Harness { name: "notebook", longest: LONGEST, read: |bytes| text("text.ipynb", bytes) },
    Harness { name: "subtitles", longest: LONGEST, read: |bytes| text("text.srt", bytes) },
    Harness { name: "mail", longest: LONGEST, read: |bytes| text("text.eml", bytes) },
    Harness { name: "mbox", longest: LONGEST, read: |bytes| text("text.mbox", bytes) },
    Harness { name: "chats", longest: LONGEST, read: |bytes| text("text.json", bytes) },
    Harness { name: "gzip", longest: LONGEST, read: |bytes| text("text.txt.gz", bytes) },
    Harness { name: "zstd", longest: LONGEST, read: |bytes| text("text.txt.zst", bytes) },
    Harness { name: "archives", longest: LONGEST, read: |bytes| text("text.zip", bytes) },
];

/// Reads a file, and checks the order of the events; an error must name the file.
fn text(name: &str, bytes: &[u8]) {
    let path = scratch::file(name, bytes);
    let mut listing = Listing::default();
    if check_file_error(listing.add_path(&path)).is_none() {
        return;
    }
    for file in &listing.files {
        let mut order = Order::default();
        let mut sink = |event: Event<'_>| -> Result<(), source::Error> {
            order.next(event);
            Ok(())
        };
        let read = source::read(file, &ReadOptions::default(), &AtomicU64::new(0), &mut sink);
        if check_file_error(read).is_some() {
            assert!(!order.is_inside, "a document that does not end");
        }
    }
}

/// Checks the order of a document's events.
#[derive(Default)]
struct Order {
    is_inside: bool,
    is_titled: bool,
}

impl Order {
    /// Checks the next event by the rules of [`Event`].
    fn next(&mut self, event: Event<'_>) {
        match event {
            Event::Title(title) => {
                assert!(!self.is_inside && !self.is_titled, "a second title, or one behind its text");
                assert!(!title.is_empty() && !title.contains('\n'), "a title that is not a line: {title:?}");
                self.is_titled = true;
            }
            Event::Dated(_) => assert!(!self.is_inside, "a date behind its text"),
            Event::Text(text) => {
                assert!(text.len() <= 8 << 20, "a piece of {} bytes", text.len());
                self.is_inside = true;
            }
            Event::EndOfDocument => *self = Self::default(),
        }
    }
}

/// The first bytes of a zip archive.
const ZIP: &[u8] = b"PK";

/// A Word document, or only the part with its text: most changes to an archive leave nothing to
/// read.
fn docx(bytes: &[u8]) {
    match bytes.starts_with(ZIP) {
        true => text("text.docx", bytes),
        false => text("text.docx", &zip::of(&[("word/document.xml", bytes)])),
    }
}

/// An OpenDocument text, or only its content.
fn odt(bytes: &[u8]) {
    let kind = b"application/vnd.oasis.opendocument.text";
    match bytes.starts_with(ZIP) {
        true => text("text.odt", bytes),
        false => text("text.odt", &zip::of(&[("mimetype", kind), ("content.xml", bytes)])),
    }
}

/// An EPUB book, or only its package document, which also serves as its only chapter.
fn epub(bytes: &[u8]) {
    let container: &[u8] = b"<container><rootfiles><rootfile full-path=\"a.opf\"/></rootfiles></container>";
    let parts = [
        ("mimetype", b"application/epub+zip".as_slice()),
        ("META-INF/container.xml", container),
        ("a.opf", bytes),
        ("c.xhtml", bytes),
    ];
    match bytes.starts_with(ZIP) {
        true => text("text.epub", bytes),
        false => text("text.epub", &zip::of(&parts)),
    }
}
