//! The table of all file formats, and how the format of a file is recognised.

mod jsonl;
mod markdown;
#[cfg(feature = "readers")]
mod more;
mod parquet;
pub(super) mod text;
mod whatsapp;

use super::reader::{About, Reader};
use super::start::Start;
use std::cmp::Ordering;

/// The readers that every build has.
static KINDS: &[&dyn Reader] =
    &[&text::Text, &markdown::Markdown, &jsonl::JsonLines, &parquet::Parquet, &whatsapp::WhatsApp];

#[cfg(feature = "readers")]
use more::KINDS as MORE;
#[cfg(not(feature = "readers"))]
static MORE: &[&dyn Reader] = &[];

/// A file format: a row of the table.
#[derive(Clone, Copy)]
pub struct Kind(&'static dyn Reader);

impl Kind {
    /// All formats, in order of precedence. A file has the first format that matches its content,
    /// else the first that matches its name, else it is plain text.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().chain(MORE).map(|&reader| Self(reader))
    }

    /// Plain text.
    pub fn text() -> Self {
        Self(&text::Text)
    }

    /// The format of a file, by its content first and its name second.
    pub fn of(start: &Start) -> Self {
        let named = |kind: &Self| kind.about().endings.iter().any(|ending| start.name.ends_with(ending));
        let found = Self::all().find(|kind| kind.0.matches(start)).or_else(|| Self::all().find(named));
        found.unwrap_or(Self::text())
    }

    /// The format with this name in a manifest.
    pub fn by_id(id: &str) -> Option<Self> {
        Self::all().find(|kind| kind.about().id == id)
    }

    /// Its description.
    pub fn about(self) -> &'static About {
        self.0.about()
    }

    /// Its reader.
    pub fn reader(self) -> &'static dyn Reader {
        self.0
    }

    fn index(self) -> usize {
        Self::all().take_while(|kind| kind.about().id != self.about().id).count()
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.about().id)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.index() == other.index()
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
        self.index().cmp(&other.index())
    }
}

#[cfg(all(test, feature = "readers"))]
mod tests;
