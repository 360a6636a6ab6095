//! Reads the user's text files whole: texts, prompts, questions. Errors name the line.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 30;

/// A file's text, and its path for errors.
pub(super) struct TextFile {
    path: PathBuf,
    content: String,
}

impl TextFile {
    /// Reads the file that `flag` names, and removes a byte order mark.
    ///
    /// # Errors
    /// When it cannot be read, is larger than 1 GiB, or is not UTF-8 text; the message names the
    /// flag and the file.
    pub(super) fn read(flag: &str, path: &Path) -> Result<Self> {
        let name = || format!("{flag} {}", path.display());
        let unreadable = || format!("cannot read {}; name a file that exists and that you may read", name());
        let file = File::open(path).with_context(unreadable)?;
        let mut bytes = Vec::new();
        // A pipe has no length, so reading stops one byte past the limit.
        let known_bytes = file.metadata().with_context(unreadable)?.len();
        if known_bytes <= MAX_BYTES {
            file.take(MAX_BYTES + 1).read_to_end(&mut bytes).with_context(unreadable)?;
        }
        ensure!(
            known_bytes.max(bytes.len() as u64) <= MAX_BYTES,
            "{} is larger than 1 GiB; split it into several files",
            name()
        );
        Self::from_bytes(path, bytes).with_context(name)
    }

    fn from_bytes(path: &Path, mut bytes: Vec<u8>) -> Result<Self> {
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            bail!("it is UTF-16 text (it begins with that byte order mark); convert it with iconv -f UTF-16 -t UTF-8");
        }
        if bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        if let Some(zero) = bytes.iter().position(|&byte| byte == 0) {
            bail!(
                "it looks binary (byte {zero} is zero); give text, or if it is UTF-16 convert it with iconv -f UTF-16 -t UTF-8"
            );
        }
        let content = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            anyhow!(
                "it is not UTF-8 text: byte {at} (0x{:02X}) does not belong there; convert it, for example with iconv -f LATIN1 \
                 -t UTF-8",
                error.as_bytes()[at]
            )
        })?;
        Ok(Self { path: path.to_owned(), content })
    }

    /// The whole text.
    pub(super) fn into_content(self) -> String {
        self.content
    }

    /// Whether the file's extension means one JSON object per line: `.jsonl` or `.json`.
    pub(super) fn is_json_lines(&self) -> bool {
        let extension = self.path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| ["jsonl", "json"].iter().any(|json| extension.eq_ignore_ascii_case(json)))
    }

    /// The lines and their numbers, from 1, without line endings (`\n` or `\r\n`).
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.content.lines())
    }

    /// The JSON object of each line with its number; empty lines are skipped. `example` shows in
    /// errors what a line should look like.
    ///
    /// # Errors
    /// Names the file and the line that is not JSON, not an object, or lacks a key.
    pub(super) fn objects<T: DeserializeOwned>(&self, example: &str) -> Result<Vec<(usize, T)>> {
        let mut objects = Vec::new();
        for (number, line) in self.lines().filter(|(_, line)| !line.trim().is_empty()) {
            let place = || self.place(number);
            // Parsed as a map first: for a struct, serde would accept an array too.
            let object: Map<String, Value> = serde_json::from_str(line)
                .map_err(|error| anyhow!("{}: not a JSON object ({}); write {example}", place(), cause(&error)))?;
            let object = serde_json::from_value(Value::Object(object))
                .map_err(|error| anyhow!("{}: {}; write {example}", place(), cause(&error)))?;
            objects.push((number, object));
        }
        Ok(objects)
    }

    /// A line's location in errors: `FILE:LINE`.
    pub(super) fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }
}

/// Deserializes an `id` that a line gives, of any type: null is one too.
pub(super) fn any_id<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(given).map(Some)
}

/// Reads all of standard input as UTF-8 text, and removes a byte order mark. Call it before any
/// work polls for signals, so that the first signal ends the process.
///
/// # Errors
/// When it cannot be read, or is not UTF-8.
pub(super) fn standard_input() -> Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("cannot read standard input as UTF-8 text")?;
    Ok(without_mark(&text).to_owned())
}

/// A text without the byte order mark that some editors put before it.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Removes the line ending that `echo` and the Enter key append.
pub(super) fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// The first few words of a text, on one line.
pub(super) fn beginning(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let line: String =
        text.chars().take(MAX_CHARS).map(|c| if ['\n', '\r', '\t'].contains(&c) { ' ' } else { c }).collect();
    if text.chars().count() > MAX_CHARS { format!("{line}...") } else { line }
}

/// A JSON error without its line number: each line is parsed separately, so the parser always says
/// line 1.
fn cause(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.split_once(" at line 1 column ") {
        Some((what, column)) => format!("{what} at column {column}"),
        None => message.replace('`', "\""),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;

    fn file(name: &str, content: &str) -> TextFile {
        TextFile::from_bytes(Path::new(name), content.as_bytes().to_vec()).unwrap()
    }

    #[derive(Deserialize, Debug, PartialEq)]
    struct Line {
        text: String,
    }

    #[test]
    fn lines_lose_their_ends_and_nothing_else() {
        let text = file("a.txt", "\u{feff}one\r\n\n two \nthree");
        assert_eq!(text.lines().collect::<Vec<_>>(), [(1, "one"), (2, ""), (3, " two "), (4, "three")]);
        assert_eq!(file("a.txt", "one\n").lines().count(), 1);
        assert_eq!(file("a.txt", "").lines().count(), 0);
    }

    #[test]
    fn one_mark_and_one_line_end_go_and_no_more() {
        assert_eq!(without_line_end("a \n"), "a ");
        assert_eq!(without_line_end("a\r\n"), "a");
        assert_eq!(without_line_end("a\n\n"), "a\n");
        assert_eq!(without_line_end("a"), "a");
        assert_eq!(without_mark("\u{feff}\u{feff}a"), "\u{feff}a");
        assert_eq!(without_mark("a\u{feff}"), "a\u{feff}");
    }

    #[test]
    fn objects_are_read_line_by_line() {
        let objects =
            file("a.jsonl", "{\"text\": \"x\", \"more\": 1}\n\n{\"text\": \"y\"}\n").objects::<Line>("").unwrap();
        assert_eq!(objects, [(1, Line { text: "x".into() }), (3, Line { text: "y".into() })]);
        assert!(file("a.JSONL", "").is_json_lines() && file("a.json", "").is_json_lines());
        assert!(!file("a.txt", "").is_json_lines() && !file("json", "").is_json_lines());
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = |line: &str| {
            let content = format!("{{\"text\": \"x\"}}\n{line}\n");
            file("a.jsonl", &content).objects::<Line>("{\"text\": ...}").unwrap_err().to_string()
        };
        assert_eq!(
            error("{\"text\" \"x\"}"),
            "a.jsonl:2: not a JSON object (expected `:` at column 9); write {\"text\": ...}"
        );
        assert_eq!(error("{}"), "a.jsonl:2: missing field \"text\"; write {\"text\": ...}");
        assert!(error("{\"text\": 1}").starts_with("a.jsonl:2: invalid type: integer \"1\", expected a string"));
        assert!(error("[\"x\"]").starts_with("a.jsonl:2: not a JSON object (invalid type: sequence, expected a map"));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let error = |bytes: &[u8]| TextFile::from_bytes(Path::new("a"), bytes.to_vec()).err().unwrap().to_string();
        assert!(error(b"caf\xe9").contains("byte 3 (0xE9) does not belong there"));
        assert!(error(b"a\0b").contains("looks binary (byte 1 is zero)"));
        assert!(error(b"\xff\xfea\0").contains("UTF-16"));
        let missing = TextFile::read("--file", Path::new("no/such/file")).err().unwrap();
        assert!(format!("{missing:#}").starts_with("cannot read --file no/such/file; name a file that exists"));
    }

    #[test]
    fn a_file_too_large_is_refused_before_it_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.txt");
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap(); // a sparse file: uses no disk space
        let error = TextFile::read("--prompts", &path).err().unwrap().to_string();
        assert!(error.contains("is larger than 1 GiB; split it"), "{error}");
    }
}
