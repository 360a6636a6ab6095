//! The table of all kinds of file, and which of them a file is.

#[cfg(feature = "readers")]
mod chat_json;
#[cfg(feature = "readers")]
mod csv;
#[cfg(feature = "readers")]
mod docx;
#[cfg(feature = "readers")]
mod epub;
#[cfg(feature = "readers")]
mod html;
#[cfg(feature = "readers")]
mod ipynb;
mod jsonl;
#[cfg(feature = "readers")]
mod latex;
#[cfg(feature = "readers")]
mod mail;
mod markdown;
#[cfg(feature = "readers")]
mod odt;
mod parquet;
#[cfg(feature = "readers")]
mod pdf;
#[cfg(feature = "readers")]
mod rtf;
#[cfg(feature = "readers")]
mod subtitles;
pub(super) mod text;
mod whatsapp;

use super::reader::{About, Reader};
use super::start::Start;
use std::cmp::Ordering;

/// Every kind, a reader each. A file is of the first whose content it has, else of the first that it
/// is named for, else plain text.
static KINDS: &[&dyn Reader] = &[
    &text::Text,
    &markdown::Markdown,
    &jsonl::JsonLines,
    &parquet::Parquet,
    &whatsapp::WhatsApp,
    #[cfg(feature = "readers")]
    &csv::Csv,
    #[cfg(feature = "readers")]
    &docx::Docx,
    #[cfg(feature = "readers")]
    &odt::Odt,
    #[cfg(feature = "readers")]
    &rtf::Rtf,
    #[cfg(feature = "readers")]
    &epub::Epub,
    #[cfg(feature = "readers")]
    &pdf::Pdf,
    #[cfg(feature = "readers")]
    &html::Html,
    #[cfg(feature = "readers")]
    &latex::Latex,
    #[cfg(feature = "readers")]
    &ipynb::Notebook,
    #[cfg(feature = "readers")]
    &subtitles::Subtitles,
    #[cfg(feature = "readers")]
    &mail::Mbox,
    #[cfg(feature = "readers")]
    &mail::Mail,
    #[cfg(feature = "readers")]
    &chat_json::ChatJson,
];

/// A kind of file: a row of the table.
#[derive(Clone, Copy)]
pub struct Kind(&'static dyn Reader);

impl Kind {
    /// Every kind there is.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|&reader| Self(reader))
    }

    /// Plain text, whose bytes are its documents.
    pub fn text() -> Self {
        Self(&text::Text)
    }

    /// The kind of a file, by its content first and its name second.
    pub fn of(start: &Start<'_>) -> Self {
        let named = |kind: &Self| kind.about().endings.iter().any(|ending| start.name.ends_with(ending));
        let found = Self::all().find(|kind| kind.0.begins(start)).or_else(|| Self::all().find(named));
        found.unwrap_or(Self::text())
    }

    /// The kind that a manifest calls so.
    pub fn by_id(id: &str) -> Option<Self> {
        Self::all().find(|kind| kind.about().id == id)
    }

    /// What is told of it.
    pub fn about(self) -> &'static About {
        self.0.about()
    }

    /// How it is read.
    pub fn reader(self) -> &'static dyn Reader {
        self.0
    }

    fn place(self) -> usize {
        KINDS.iter().position(|reader| reader.about().id == self.about().id).unwrap_or(KINDS.len())
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.about().id)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

#[cfg(all(test, feature = "readers"))]
mod tests;
