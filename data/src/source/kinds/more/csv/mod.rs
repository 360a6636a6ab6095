//! Tables of comma-separated or tab-separated values (RFC 4180, and variants in use).

mod dialect;

use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, error::Error, event::Event};
use csv::{ReaderBuilder, StringRecord};
use dialect::{FieldState, declared_delimiter, delimiter, is_quoted};
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

impl Reader for Csv {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let name = content.name();
        let (mut table, fields) = open(content)?;
        let delimiter = table.get_ref().delimiter;
        let wanted = &content.options.field;
        let Some(index) = fields.iter().position(|field| field.trim() == wanted) else {
            let fields = fields.iter().map(str::to_owned).collect();
            return Err(Error::NoField { what: format!("{name} has no field \"{wanted}\""), fields }.into());
        };
        let mut row = StringRecord::new();
        // The fields of each row that come before those that the first row names.
        let mut unnamed = 0;
        for number in 2u64.. {
            if !next_row(&mut table, content, number, &mut row)? {
                break;
            }
            if number == 2 && row.len() == fields.len() + 1 {
                unnamed = usize::from(rows_have_names(table, content, &mut row)?);
                (table, _) = open(content)?;
                next_row(&mut table, content, number, &mut row)?;
            }
            if row.iter().skip(unnamed + fields.len()).any(|surplus| !surplus.trim().is_empty()) {
                let what = format!(
                    "has more fields than the first row names; name them there too, or put quotation marks around text with {}",
                    delimiter_plural(delimiter)
                );
                return Err(Error::unusable(format!("{name}: row {number}"), what).into());
            }
            // A row may have fewer fields than the first.
            if let Some(text) = row.get(unnamed + index).filter(|text| !text.is_empty()) {
                sink(Event::Text(text))?;
                sink(Event::EndOfDocument)?;
            }
        }
        Ok(())
    }
}

/// Reads the next row, which has this number; returns whether there is one.
fn next_row(
    table: &mut csv::Reader<Bounded<'_>>,
    content: &Content<'_>,
    number: u64,
    row: &mut StringRecord,
) -> Result<bool, Error> {
    table.get_mut().row_bytes = 0;
    let has_row = table.read_record(row).map_err(|error| table.get_ref().failed(content, number, error))?;
    if has_row {
        table.get_ref().ensure_closed(content.name(), number)?;
    }
    Ok(has_row)
}

/// Whether each row begins with its name, for which the first row has no field, as R's
/// `write.table` writes it. `row` is row 2, which has one field more than the first row; so must
/// all others. Reads the table until a row differs, so that it must be opened again.
///
/// Rows that end with a delimiter look the same, but for their empty last field. So does text with
/// one comma in each row, but for the blank after the comma. Most rows decide; one alone does not.
fn rows_have_names(
    mut table: csv::Reader<Bounded<'_>>,
    content: &Content<'_>,
    row: &mut StringRecord,
) -> Result<bool, Error> {
    let fields = row.len();
    let (mut rows, mut named) = (0u64, 0u64);
    while row.len() == fields {
        rows += 1;
        let ends = row.get(fields - 1).is_none_or(|last| last.trim().is_empty());
        named += u64::from(!ends && !row.iter().any(|field| field.starts_with(' ')));
        if !next_row(&mut table, content, rows + 2, row)? {
            return Ok(rows > 1 && named * 2 > rows);
        }
    }
    Ok(false)
}

/// Opens a table and reads its first row, which names the fields; detects from its beginning the
/// delimiter and whether fields are quoted.
fn open<'a>(content: &'a Content<'_>) -> Result<(csv::Reader<Bounded<'a>>, StringRecord), Error> {
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
    let mut table = ReaderBuilder::new().delimiter(delimiter).quoting(is_quoted).flexible(true).from_reader(bounded);
    let fields = table.headers().cloned().map_err(|error| table.get_ref().failed(content, 1, error))?;
    table.get_ref().ensure_closed(content.name(), 1)?;
    Ok((table, fields))
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
            // One column with names, but not in all rows, or text in quotation marks of its own.
            ("a.csv", "\"text\"\n\"1\",\"one\"\n\"2\",\"two \\\"three\\\", four\"\n", 2, "commas"),
            ("a.csv", "\"text\"\n\"Yes\",\"No\"\n\"Up\",\"Down\",\"Left\"\n", 2, "commas"),
        ] {
            let line = read(name, table).unwrap_err();
            assert_eq!(line, format!("{name}: row {row} {}", what(signs)));
        }
        // Spreadsheets end rows like that; no text is lost.
        assert_eq!(read("a.csv", "id,text\n1,one,,\n2\n3,two, \n").unwrap(), ["one", "two"]);
    }

    #[test]
    fn names_of_rows_for_which_the_first_row_has_no_field_are_left_out() {
        let documents = |name: &str, table: &str| read(name, table).unwrap();
        // As R's `write.table` writes it: with commas, with tabs and without quotation marks.
        let commas = "\"text\",\"stars\"\n\"1\",\"one, two\",5\n\"2\",\"three\",NA\n";
        assert_eq!(documents("a.csv", commas), ["one, two", "three"]);
        assert_eq!(documents("a.tsv", "stars\ttext\na\t5\tone\nb\t4\t\nc\t3\tthree\n"), ["one", "three"]);
        assert_eq!(documents("a.csv", "text;id\r\na;one;1\r\nb;two;2\r\n"), ["one", "two"]);
        // As its `write.csv` does: an empty field names the names.
        assert_eq!(documents("a.csv", "\"\",\"text\"\n\"1\",\"one\"\n\"2\",\"two\"\n"), ["one", "two"]);
        // A column by itself: only the quotation marks of the names tell it from text with commas.
        for sign in [",", ";", "\t"] {
            let one = "\"text\"\n\"1\",\"one, two\"\n\n\"2\",\"three;\n\"\"four\"\"\"\n"
                .replace("\",\"", &format!("\"{sign}\""));
            for table in [one.clone(), one.replace('\n', "\r\n")] {
                let read = documents("a.csv", &table).join("|").replace('\r', "");
                assert_eq!(read, "one, two|three;\n\"four\"", "{table:?}");
            }
        }
        let without_some = "\"text\"\n\"1\",\"one\"\n\"2\",NA\n\"3\",\n\"4\",\"two\"\n";
        assert_eq!(documents("a.csv", without_some), ["one", "NA", "two"]);
        let without_first = "\"text\"\n\"1\",NA\n\"2\",\"one, two\"\n";
        assert_eq!(documents("a.csv", without_first), ["NA", "one, two"]);
        let long = format!("id,text\n{}", "x,1,one\n".repeat(40_000));
        assert_eq!(documents("a.csv", &long), vec!["one"; 40_000]);
        // Rows that end with a delimiter have no names.
        assert_eq!(documents("a.csv", "id,text\n1,one,\n2,two,\n"), ["one", "two"]);
        // Nor has a table in which a row has another number of fields, or all have a comma in their text.
        for (rows, number) in [
            ("a,1,one\nb,2,two\n3,three\n", 2),
            ("a,1,one\nb,2,two,three\n", 2),
            ("1,one,\n2,two,three\n3,four,\n", 3),
            ("1,one, two\n2,three, four\n", 2),
        ] {
            let line = read("a.csv", &format!("id,text\n{rows}")).unwrap_err();
            assert!(line.starts_with(&format!("a.csv: row {number} has more fields than")), "{rows:?}: {line}");
        }
        let open = "id,text\na,1,one\nb,2,\"two\nc,3,three\n";
        assert_eq!(
            read("a.csv", open).unwrap_err().split(';').next(),
            Some("a.csv: row 3 has a quotation mark that is not closed")
        );
    }

    #[test]
    fn commas_are_text_in_a_table_of_one_field() {
        let documents = |table: &str| read("a.csv", table).unwrap();
        assert_eq!(documents("text\nHello, world\none; two\tthree\n"), ["Hello, world", "one; two\tthree"]);
        assert_eq!(documents("text\n\"Hello,\nworld\"\nno\n"), ["Hello,\nworld", "no"]);
        assert_eq!(documents("\"text\"\n\"a,b\"\n\"c,d\"\n"), ["a,b", "c,d"]);
        assert_eq!(documents("\"text\"\n\"1\", he said\na,b\nc,d\n"), ["1, he said", "a,b", "c,d"]);
        assert_eq!(documents("\"text\"\n\"No\", he said.\n\"So\", I said.\n"), ["No, he said.", "So, I said."]);
        assert_eq!(documents("\"text\"\n\"No\",he said\n\"So\",I said\n"), ["No,he said", "So,I said"]);
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
