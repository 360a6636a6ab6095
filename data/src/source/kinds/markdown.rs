//! Markdown, as plain text but for the front matter, which is set apart.

use super::text::pieces;
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, event::Event};
use std::io::{BufRead, BufReader, Cursor, Read};

/// The kind.
pub struct Markdown;

const ABOUT: About = About {
    id: "markdown",
    name: "Markdown",
    endings: &[".md", ".markdown", ".mdown", ".qmd", ".rmd"],
    document: "a file; `<|endoftext|>` makes several",
    without: "the front matter, which has the title",
};

/// A front matter is no longer than this.
const MOST_BYTES: u64 = 64 << 10;

impl Reader for Markdown {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let cannot_read = |offset, error| content.cannot_read(&format!("{offset} bytes of text"), error);
        let mut reader = BufReader::new(content.text()?);
        let (start, matter) = front_matter(&mut reader).map_err(|error| cannot_read(0, error))?;
        if let Some(title) = matter.lines().find_map(title) {
            sink(Event::Title(title))?;
        }
        pieces(&mut Cursor::new(start).chain(reader), &cannot_read, sink)
    }
}

/// What was read and is no front matter, and the front matter: what stands between a first line of
/// `---` (YAML) or `+++` (TOML) and the next.
fn front_matter(reader: &mut impl BufRead) -> std::io::Result<(Vec<u8>, String)> {
    let (mut whole, mut matter) = (Vec::new(), 0..0);
    let mut limited = reader.take(MOST_BYTES);
    let mut next_line = |whole: &mut Vec<u8>| -> std::io::Result<Option<usize>> {
        let start = whole.len();
        let n = limited.read_until(b'\n', whole)?;
        Ok((n > 0 && whole.ends_with(b"\n")).then_some(start))
    };
    if next_line(&mut whole)?.is_none() || !matches!(whole.trim_ascii_end(), b"---" | b"+++") {
        return Ok((whole, String::new()));
    }
    let mark = whole.trim_ascii_end().to_owned();
    matter.start = whole.len();
    while let Some(start) = next_line(&mut whole)? {
        let line = whole[start..].trim_ascii_end();
        if line == mark || (mark == b"---" && line == b"...") {
            return Ok((Vec::new(), String::from_utf8_lossy(&whole[matter.start..start]).into_owned()));
        }
    }
    Ok((whole, String::new()))
}

/// The title that a line of YAML or TOML says.
fn title(line: &str) -> Option<&str> {
    let value = line.strip_prefix("title")?.trim_start().strip_prefix([':', '='])?.trim();
    let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value)).filter(|title| !title.is_empty())
}
