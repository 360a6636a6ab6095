//! Tables of comma-separated or tab-separated values (RFC 4180, and what else is called so).

use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader};
use crate::source::{content::Content, error::Error, event::Event};
use csv::{ReaderBuilder, StringRecord};
use std::{cell::Cell, io, io::Read, rc::Rc};

/// The kind.
pub struct Csv;

const ABOUT: About = About {
    id: "csv",
    name: "CSV",
    endings: &[".csv", ".tsv", ".tab"],
    document: "a row, by one field, which the first row names",
    without: "the other fields",
};

/// The longest row that is read, which bounds the memory that it takes.
const LONGEST_ROW_BYTES: u64 = 64 << 20;

/// How far into a table it is looked for what parts its fields.
const HEADER_BYTES: u64 = 64 << 10;

impl Reader for Csv {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let name = content.name();
        let mut header = Vec::new();
        let mut text = content.text()?;
        let read = text.by_ref().take(HEADER_BYTES).read_to_end(&mut header);
        read.map_err(|error| content.cannot_read("0 bytes of text", error))?;
        let delimiter = delimiter(&header);
        let row_bytes = Rc::new(Cell::new(0));
        let bounded = Bounded { text: io::Cursor::new(header).chain(text), row_bytes: row_bytes.clone() };
        let mut table = ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(bounded);
        let failed = |row: u64, error: csv::Error| match error.into_kind() {
            _ if row_bytes.get() > LONGEST_ROW_BYTES => {
                let most = LONGEST_ROW_BYTES >> 20;
                let what = format!(
                    "is longer than {most} MiB, as behind a quotation mark without its other one; correct or remove it"
                );
                Error::unusable(format!("{name}: row {row}"), what)
            }
            csv::ErrorKind::Io(error) => content.cannot_read(&format!("row {row}"), error),
            _ => Error::unusable(format!("{name}: row {row}"), "is no row of text; correct or remove it"),
        };
        let fields = table.headers().map_err(|error| failed(1, error))?.clone();
        let wanted = &content.options.field;
        let Some(index) = fields.iter().position(|field| field.trim() == wanted) else {
            let fields = fields.iter().map(str::to_owned).collect();
            return Err(Error::NoField { what: format!("{name} has no field \"{wanted}\""), fields }.into());
        };
        let mut row = StringRecord::new();
        for number in 2u64.. {
            row_bytes.set(0);
            if !table.read_record(&mut row).map_err(|error| failed(number, error))? {
                break;
            }
            // A row may lack its last fields.
            if let Some(text) = row.get(index).filter(|text| !text.is_empty()) {
                sink(Event::Text(text))?;
                sink(Event::EndOfDocument)?;
            }
        }
        Ok(())
    }
}

/// What parts the fields: what the first row has most of, outside quotes.
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
    counts.into_iter().max_by_key(|&(_, count)| count).map_or(b',', |(delimiter, _)| delimiter)
}

/// Text that ends in an error when a row goes on for too long, as behind a quote without its other
/// one.
struct Bounded<R> {
    text: R,
    row_bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.text.read(buffer)?;
        self.row_bytes.set(self.row_bytes.get() + n as u64);
        if self.row_bytes.get() > LONGEST_ROW_BYTES {
            return Err(io::Error::other("the row is too long"));
        }
        Ok(n)
    }
}
