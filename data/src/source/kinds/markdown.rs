//! Markdown: plain text, from which the front matter is removed.

use super::text::stream_documents;
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, event::Event};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Cursor, Read};

pub struct Markdown;

const ABOUT: About = About {
    id: "markdown",
    name: "Markdown",
    endings: &[".md", ".markdown", ".mdown", ".qmd", ".rmd"],
    document: "a file; `<|endoftext|>` splits it",
    without: "the front matter; its title becomes the document's title",
};

/// The longest front matter.
const MAX_BYTES: u64 = 64 << 10;

impl Reader for Markdown {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let cannot_read = |offset, error| content.cannot_read(&format!("{offset} bytes of text"), error);
        let mut reader = BufReader::new(content.text()?);
        let (start, matter) = front_matter(&mut reader).map_err(|error| cannot_read(0, error))?;
        if let Some(title) = matter.lines().find_map(title) {
            sink(Event::Title(title))?;
        }
        stream_documents(&mut Cursor::new(start).chain(reader), &cannot_read, sink)
    }
}

/// Reads the front matter: the lines between a first line of `---` (YAML) or `+++` (TOML) and the
/// next, if they look like it. Returns the bytes read that are text, and the front matter.
fn front_matter(reader: &mut impl BufRead) -> std::io::Result<(Vec<u8>, String)> {
    let mut whole = Vec::new();
    let mut limited = reader.take(MAX_BYTES);
    let mut next_line = |whole: &mut Vec<u8>| -> std::io::Result<Option<usize>> {
        let start = whole.len();
        let n = limited.read_until(b'\n', whole)?;
        Ok((n > 0 && whole.ends_with(b"\n")).then_some(start))
    };
    if next_line(&mut whole)?.is_none() || !matches!(whole.trim_ascii_end(), b"---" | b"+++") {
        return Ok((whole, String::new()));
    }
    let mark = whole.trim_ascii_end().to_owned();
    let begins = whole.len();
    while let Some(start) = next_line(&mut whole)? {
        let line = whole[start..].trim_ascii_end();
        if line == mark || (mark == b"---" && line == b"...") {
            let matter = String::from_utf8_lossy(&whole[begins..start]).into_owned();
            return Ok(if is_matter(&matter, &mark) { (Vec::new(), matter) } else { (whole, String::new()) });
        }
    }
    Ok((whole, String::new()))
}

/// Whether the lines are YAML or TOML, and not text between two horizontal rules.
fn is_matter(matter: &str, mark: &[u8]) -> bool {
    if mark == b"+++" { is_toml(matter) } else { is_yaml(matter) }
}

/// Whether this looks like TOML: after comments it begins with a key or a table; no more checks.
fn is_toml(matter: &str) -> bool {
    let mut lines = matter.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_none_or(|line| {
        let is_table = line.starts_with('[') && (line.ends_with(']') || line.contains("] #"));
        let is_key = line.split_once('=').is_some_and(|(key, _)| {
            let key = key.trim_end();
            let is_word = |one: char| one.is_alphanumeric() || matches!(one, '_' | '-' | '.');
            key.starts_with(['"', '\'']) || (!key.is_empty() && key.chars().all(is_word))
        });
        is_table || is_key
    })
}

/// Whether this looks like YAML: no blank line first; a key after any comments and list items; no
/// key twice unless lowercase (speakers recur in a dialogue); most lines fit, and none is prose.
fn is_yaml(matter: &str) -> bool {
    if matter.lines().next().is_some_and(|line| line.trim().is_empty()) {
        return false;
    }
    let (mut lines, mut odd, mut keys, mut open_quote) = (0, 0, BTreeSet::new(), None);
    for line in matter.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        lines += 1;
        if let Some(quote) = open_quote {
            open_quote = open_quote.filter(|_| !line.contains(quote));
            continue;
        }
        match YamlLine::of(line) {
            YamlLine::Key { key, value } => {
                // Front matter does not begin with a sentence that has a colon.
                let is_sentence = keys.is_empty() && key.contains(' ') && ends_sentence(value);
                let is_speaker = !keys.insert(key) && !key.starts_with(char::is_lowercase);
                if is_sentence || is_speaker {
                    return false;
                }
                open_quote = unclosed_quote(value);
            }
            YamlLine::Indented | YamlLine::Other if keys.is_empty() => return false,
            YamlLine::Other if ends_sentence(line) => return false,
            YamlLine::Other => odd += 1,
            YamlLine::ItemOrComment | YamlLine::Indented => {}
        }
    }
    open_quote.is_none() && (lines == 0 || (!keys.is_empty() && odd * 2 < lines))
}

/// A line of YAML by its beginning.
enum YamlLine<'a> {
    ItemOrComment,
    Key {
        key: &'a str,
        value: &'a str,
    },
    /// Continues the value of a key, or closes its bracket.
    Indented,
    Other,
}

impl<'a> YamlLine<'a> {
    fn of(line: &'a str) -> Self {
        if line == "-" || line.starts_with("- ") || line.starts_with('#') {
            Self::ItemOrComment
        } else if let Some((key, value)) = key_of(line) {
            Self::Key { key, value }
        } else if line.starts_with([' ', '\t', ']', '}']) {
            Self::Indented
        } else {
            Self::Other
        }
    }
}

/// The quotation mark with which a value begins, if no second one closes it.
fn unclosed_quote(value: &str) -> Option<char> {
    value.chars().next().filter(|&one| matches!(one, '"' | '\'') && !value[1..].contains(one))
}

/// The longest key, in characters.
const LONGEST_KEY: usize = 40;

/// The key that a line of YAML begins with, and its value.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(": ").or_else(|| line.split_once(":\t")).or_else(|| {
        let key = line.strip_suffix(':')?;
        Some((key, ""))
    })?;
    let begins = key.starts_with(|one: char| !one.is_whitespace() && !one.is_numeric());
    (begins && !key.contains(". ") && key.chars().count() <= LONGEST_KEY).then_some((key, value.trim()))
}

/// Whether this ends like a sentence.
fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches(['”', '’', ')', '*', '_']).ends_with(['.', '!', '?', '…', '。', '！', '？'])
}

/// The value, if this line of YAML or TOML is the title.
fn title(line: &str) -> Option<&str> {
    let value = line.strip_prefix("title")?.trim_start().strip_prefix([':', '='])?.trim();
    let quoted = |mark: char| value.strip_prefix(mark)?.strip_suffix(mark);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value)).filter(|title| !title.trim_matches('"').is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_stands_between_two_rules_is_text_unless_it_is_yaml_or_toml() {
        for text in [
            "---\n12 May. Went to town with Anna.\n---\n13 May. Rain.\n",
            "---\n\nAll of my first chapter.\n\n---\n\nThe second.\n",
            "---\n12 May: went to town\n---\nx",
            "---\ntitle: x\nand then a line of prose\n---\nx",
            "---\n- milk\n- bread\n---\nx",
            "---\n\ntitle: A\n---\nx",
            "---\nI met Anna today: she was well.\n---\nx",
            "---\n12 May. Went to town: rain.\n---\nx",
            "---\nMonday: rain\nWe stayed in: it was cold\nand we read by the fire.\n---\nx",
            "---\nAnna: \"Never closed\nand prose\n---\nx",
            "---\nAnna: Hello.\nBen: Hi.\nAnna: Bye.\n---\nx",
            "---\n\"Anna\": \"Hello\"\n\"Anna\": \"Bye\"\n---\nx",
            "+++\nWords.\n+++\nx",
            "---\ntitle: never closed\n",
        ] {
            let (read, matter) = front_matter(&mut text.as_bytes()).unwrap();
            assert!(text.as_bytes().starts_with(&read) && matter.is_empty(), "{text}");
            assert!(read.len() >= 8, "{text}");
        }
        for (text, expected) in [
            ("---\ntitle: A\ntags:\n- one\n  two: |\n\n# more\n---\nx", "title: A\ntags:\n- one\n  two: |\n\n# more\n"),
            ("---\r\n\"my-title\": A\r\n...\r\nx", "\"my-title\": A\r\n"),
            (
                "+++\ntitle = \"A\"\n[menu.main]\ntags = [\n  1,\n]\n+++\nx",
                "title = \"A\"\n[menu.main]\ntags = [\n  1,\n]\n",
            ),
            ("---\n---\nx", ""),
        ] {
            assert_eq!(front_matter(&mut text.as_bytes()).unwrap(), (Vec::new(), expected.to_owned()));
        }
    }

    #[test]
    fn keys_of_every_shape_are_front_matter() {
        for matter in [
            "Date created: 2024-01-01\n",
            "key with spaces:\n  - one\n",
            "\"my key\": 1\n",
            "og:title: B\n",
            "@context: x\n",
            "<<: *d\n",
            "# a comment.\ntitle: A\n",
            "- one\ntitle: A\n",
            "title: \"A\nand B.\"\ndate: x\n",
            "authors:\n- name: A\n  url: x\n- name: B\n  url: y\ntext: \"A\ntext: B\"\n",
            "title: A\n\nsummary: It has a sentence. Or two!\n",
            "title: A\ndate: x\ntitle: B\n",
        ] {
            let text = format!("---\n{matter}---\nx");
            assert_eq!(front_matter(&mut text.as_bytes()).unwrap(), (Vec::new(), matter.to_owned()));
        }
        for matter in [
            "title = \"A\"\nabout = \"\"\"\nA sentence.\nTwo.\n\"\"\"\n",
            "tags = [\n\"a\",\n]\n",
            "\n# a comment\n[menu]\nx = 1\n",
            "\"my key\" = 1\n",
        ] {
            let text = format!("+++\n{matter}+++\nx");
            assert_eq!(front_matter(&mut text.as_bytes()).unwrap(), (Vec::new(), matter.to_owned()));
        }
    }
}
