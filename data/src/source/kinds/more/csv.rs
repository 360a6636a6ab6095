//! Tables of comma-separated or tab-separated values (RFC 4180, and variants in use).

use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, error::Error, event::Event};
use csv::{ReaderBuilder, StringRecord};
use std::{io, io::Read};

pub struct Csv;

const ABOUT: About = About {
    id: "csv",
    name: "CSV",
    endings: &[".csv", ".tsv", ".tab"],
    document: "one field of a row; the first row names the fields",
    without: "the other fields",
};

/// The longest row that is read, to bound the memory.
const LONGEST_ROW_BYTES: u64 = 64 << 20;

/// Bytes at the start of a table that are searched for the delimiter.
const SNIFFED_BYTES: u64 = 64 << 10;

/// The delimiter for a table with one field: ASCII's unit separator, which no text contains.
const SINGLE_FIELD_DELIMITER: u8 = 0x1f;

impl Reader for Csv {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let name = content.name();
        let mut table = open(content)?;
        let delimiter = table.get_ref().delimiter;
        let fields = table.headers().cloned();
        let fields = fields.map_err(|error| table.get_ref().failed(content, 1, error))?;
        table.get_ref().ensure_closed(name, 1)?;
        let wanted = &content.options.field;
        let Some(index) = fields.iter().position(|field| field.trim() == wanted) else {
            let fields = fields.iter().map(str::to_owned).collect();
            return Err(Error::NoField { what: format!("{name} has no field \"{wanted}\""), fields }.into());
        };
        let mut row = StringRecord::new();
        for number in 2u64.. {
            table.get_mut().row_bytes = 0;
            let has_row = table.read_record(&mut row);
            if !has_row.map_err(|error| table.get_ref().failed(content, number, error))? {
                break;
            }
            table.get_ref().ensure_closed(name, number)?;
            if row.iter().skip(fields.len()).any(|surplus| !surplus.trim().is_empty()) {
                let what = format!(
                    "has more fields than the first row names; name them there too, or put quotation marks around text with {}",
                    delimiter_plural(delimiter)
                );
                return Err(Error::unusable(format!("{name}: row {number}"), what).into());
            }
            // A row may have fewer fields than the first.
            if let Some(text) = row.get(index).filter(|text| !text.is_empty()) {
                sink(Event::Text(text))?;
                sink(Event::EndOfDocument)?;
            }
        }
        Ok(())
    }
}

/// Opens a table; detects from its beginning the delimiter and whether fields are quoted.
fn open<'a>(content: &'a Content<'_>) -> Result<csv::Reader<Bounded<'a>>, Error> {
    let mut header = Vec::new();
    let mut text = content.text()?;
    let read = text.by_ref().take(SNIFFED_BYTES).read_to_end(&mut header);
    read.map_err(|error| content.cannot_read("0 bytes of text", error))?;
    let delimiter = match declared_delimiter(&header) {
        Some((declared, line_bytes)) => {
            header.drain(..line_bytes);
            declared
        }
        None => delimiter(&header),
    };
    let is_quoted = is_quoted(&header, delimiter);
    let text = Box::new(io::Cursor::new(header).chain(text));
    let state = is_quoted.then_some(FieldState::Begin);
    let bounded = Bounded { text, delimiter, state, row_bytes: 0, ends_quoted: false };
    Ok(ReaderBuilder::new().delimiter(delimiter).quoting(is_quoted).flexible(true).from_reader(bounded))
}

/// The delimiter that Excel's line before the first row (`sep=;`) declares, and the length of that
/// line.
fn declared_delimiter(start: &[u8]) -> Option<(u8, usize)> {
    let (head, rest) = start.split_at_checked(b"sep=".len()).filter(|(head, _)| head.eq_ignore_ascii_case(b"sep="))?;
    let is_delimiter = |byte: u8| byte == b'\t' || byte.is_ascii_punctuation() && byte != b'"';
    match *rest {
        [byte, b'\n', ..] if is_delimiter(byte) => Some((byte, head.len() + 2)),
        [byte, b'\r', b'\n', ..] if is_delimiter(byte) => Some((byte, head.len() + 3)),
        _ => None,
    }
}

/// The delimiter's plural, for messages.
fn delimiter_plural(delimiter: u8) -> &'static str {
    match delimiter {
        b',' => "commas",
        b';' => "semicolons",
        b'\t' => "tabs",
        _ => "separators",
    }
}

/// The delimiter: the candidate that is most frequent in the first row, outside quotes. If the
/// first row has none, the table has one field, and commas in later rows are text.
fn delimiter(start: &[u8]) -> u8 {
    let mut quoted = false;
    let mut counts = [(b'\t', 0), (b';', 0), (b',', 0)];
    for &byte in start {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            _ if quoted => {}
            _ => counts.iter_mut().filter(|(delimiter, _)| *delimiter == byte).for_each(|(_, count)| *count += 1),
        }
    }
    let most = counts.into_iter().max_by_key(|&(_, count)| count).filter(|&(_, count)| count > 0);
    most.map_or(SINGLE_FIELD_DELIMITER, |(delimiter, _)| delimiter)
}

/// Whether fields are quoted, judging by the beginning of a table. In tab-separated ones quotation
/// marks are often text: then text follows right after a mark that would close a field.
fn is_quoted(start: &[u8], delimiter: u8) -> bool {
    let mut state = FieldState::Begin;
    let mut text_after_quote = |&byte: &u8| {
        let before = state;
        state = before.after(byte, delimiter);
        before == FieldState::QuoteInQuoted && state == FieldState::Plain
    };
    delimiter != b'\t' || !start.iter().any(&mut text_after_quote)
}

/// The state within a field, as the `csv` crate sees it: a quotation mark counts at the start of a
/// field, and inside a field that began with one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldState {
    Begin,
    Plain,
    Quoted,
    /// After a quotation mark in a quoted field: it ends the field, or is the first of a doubled
    /// one.
    QuoteInQuoted,
}

impl FieldState {
    fn after(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            (Self::Begin | Self::QuoteInQuoted, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::QuoteInQuoted,
            (Self::Quoted, _) => Self::Quoted,
            (_, b'\n' | b'\r') => Self::Begin,
            (_, byte) if byte == delimiter => Self::Begin,
            _ => Self::Plain,
        }
    }
}

/// A reader that fails if a row is too long, as after an unclosed quotation mark, and that knows at
/// the end whether one is unclosed.
struct Bounded<'a> {
    text: Box<dyn Read + 'a>,
    delimiter: u8,
    /// `None` if quotation marks are text.
    state: Option<FieldState>,
    /// Bytes that were read for the current row.
    row_bytes: u64,
    /// Whether the table has ended within a quoted field.
    ends_quoted: bool,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.text.read(buffer)?;
        let after = |old: FieldState| buffer[..n].iter().fold(old, |state, &byte| state.after(byte, self.delimiter));
        self.state = self.state.map(after);
        self.ends_quoted = n == 0 && self.state == Some(FieldState::Quoted);
        self.row_bytes += n as u64;
        if self.row_bytes > LONGEST_ROW_BYTES {
            return Err(io::Error::other("the row is too long"));
        }
        Ok(n)
    }
}

impl Bounded<'_> {
    /// The error for a row that the library could not read.
    fn failed(&self, content: &Content<'_>, row: u64, error: csv::Error) -> Error {
        let place = format!("{}: row {row}", content.name());
        match error.into_kind() {
            _ if self.row_bytes > LONGEST_ROW_BYTES => {
                let most = LONGEST_ROW_BYTES >> 20;
                let what = format!(
                    "is longer than {most} MiB, perhaps for lack of a closing quotation mark; correct or remove it"
                );
                Error::unusable(place, what)
            }
            csv::ErrorKind::Io(error) => content.cannot_read(&format!("row {row}"), error),
            _ => Error::unusable(place, "is not valid CSV; correct or remove it"),
        }
    }

    /// Rejects a table that ends within a quoted field. The error names the last row, where that
    /// field begins; whether the mark is missing there or in an earlier row cannot be known.
    fn ensure_closed(&self, name: &str, row: u64) -> Result<(), Error> {
        if self.ends_quoted {
            let what = "has a quotation mark that is not closed; close or remove it";
            return Err(Error::unusable(format!("{name}: row {row}"), what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::source::{self, Listing, ReadOptions};
    use std::sync::atomic::AtomicU64;

    /// The documents of a table, or the error's line.
    fn read(name: &str, table: &str) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, table).unwrap();
        let mut listing = Listing::default();
        listing.add_path(&path).unwrap();
        let mut documents = vec![String::new()];
        let mut sink = |event: Event<'_>| -> Result<(), Error> {
            match event {
                Event::Text(text) => documents.last_mut().unwrap().push_str(text),
                Event::EndOfDocument => documents.push(String::new()),
                _ => {}
            }
            Ok(())
        };
        let options = ReadOptions::default();
        let read = source::read::<Error>(&listing.files[0], &options, &AtomicU64::new(0), &mut sink);
        documents.pop();
        let line = |error: Error| error.to_string().replace(&format!("{}/", folder.path().display()), "");
        read.map(|_| documents).map_err(line)
    }

    #[test]
    fn a_quotation_mark_without_its_other_one_does_not_swallow_the_rest_of_the_table() {
        let what = "has a quotation mark that is not closed; close or remove it";
        let row = |number| format!("a.csv: row {number} {what}");
        let open = "text,label\n\"hello there my friend,1\nworld is round,2\nthird line here,3\n";
        assert_eq!(read("a.csv", open), Err(row(2)));
        assert_eq!(read("a.csv", "text,label\none,1\n2,\"\"\"two\"\"\n"), Err(row(3)));
        assert_eq!(read("a.csv", "text,\"label\none,1\n"), Err(row(1)));
        let long = format!("text,label\n{}\"last,1\nand more,2", "one,1\n".repeat(40_000));
        assert_eq!(read("a.csv", &long), Err(row(40_002)));
    }

    #[test]
    fn a_row_with_more_fields_than_the_first_names_is_told() {
        let what = |signs| {
            format!(
                "has more fields than the first row names; name them there too, or put quotation marks around text with {signs}"
            )
        };
        for (name, table, row, signs) in [
            ("a.csv", "id,text\n1,one\n2,\"two, three\"\n3,four, five\n", 4, "commas"),
            ("a.csv", "text;id\r\none;1\r\ntwo; three;2\r\n", 3, "semicolons"),
            ("a.tsv", "id\ttext\n1\tone\ttwo\n", 2, "tabs"),
            ("a.csv", "sep=|\nid|text\n1|one|two\n", 2, "separators"),
        ] {
            let line = read(name, table).unwrap_err();
            assert_eq!(line, format!("{name}: row {row} {}", what(signs)));
        }
        // Spreadsheets end rows like that; no text is lost.
        assert_eq!(read("a.csv", "id,text\n1,one,,\n2\n3,two, \n").unwrap(), ["one", "two"]);
    }

    #[test]
    fn commas_are_text_in_a_table_of_one_field() {
        let documents = |table: &str| read("a.csv", table).unwrap();
        assert_eq!(documents("text\nHello, world\none; two\tthree\n"), ["Hello, world", "one; two\tthree"]);
        assert_eq!(documents("text\n\"Hello,\nworld\"\nno\n"), ["Hello,\nworld", "no"]);
    }

    #[test]
    fn a_line_may_say_what_parts_the_fields() {
        for sign in [";", ",", "\t", "|"] {
            for end in ["\n", "\r\n"] {
                let table = ["sep=", sign, end, "id", sign, "text", end, "1", sign, "one", end].concat();
                assert_eq!(read("a.csv", &table).unwrap(), ["one"], "{table:?}");
            }
        }
        assert_eq!(read("a.csv", "SEP=;\ntext\none, two\n").unwrap(), ["one, two"]);
        assert_eq!(read("a.csv", "sep=ab;text\n1;one\n").unwrap(), ["one"]);
    }

    #[test]
    fn quotation_marks_that_open_nothing_are_text() {
        let documents = |name: &str, table: &str| read(name, table).unwrap();
        assert_eq!(documents("a.csv", "text,label\n5\" nails,1\na \"b,2\n"), ["5\" nails", "a \"b"]);
        assert_eq!(documents("a.csv", "text\n\"she said \"\"no\"\"\""), ["she said \"no\""]);
        assert_eq!(documents("a.csv", "text\n\"two\nlines\"\n\"\"\n"), ["two\nlines"]);
        assert_eq!(documents("a.csv", "text\n\"over\"done\" it\n"), ["overdone\" it"]);
        assert_eq!(documents("a.tsv", "text\tlabel\none, \"two\t\"1\"\r\n"), ["one, \"two"]);
        let spoken = "id\ttext\n1\t\"Come,\" he said.\n2\t\"Come\n3\tback.\"\n4\tThe \"end\n";
        assert_eq!(documents("a.tsv", spoken), ["\"Come,\" he said.", "\"Come", "back.\"", "The \"end"]);
        assert_eq!(documents("a.tsv", "id\ttext\n1\t\"a\tb \"\"c\"\"\"\n"), ["a\tb \"c\""]);
    }
}
