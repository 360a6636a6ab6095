//! Parquet: one column of strings, a row a document.

use super::{error::Error, event::Event, event::Sink};
use ember_host::panics::quietly;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::{fs::File, sync::atomic::AtomicU64, sync::atomic::Ordering};

/// Rows decoded at once: few, since each may be a book.
const ROWS: usize = 16;

/// Hands the rows of a column to `sink`; a null is no document. `read_bytes` grows by `file_bytes`
/// as the rows go by.
pub fn read<E: From<Error>>(
    name: &str,
    file: File,
    field: &str,
    file_bytes: u64,
    read_bytes: &AtomicU64,
    sink: &mut Sink<'_, E>,
) -> Result<(), E> {
    let mut column = Column::open(name, file, field)?;
    let mut seen_rows = 0;
    while let Some((rows, texts)) = column.next_rows()? {
        for text in &texts {
            let Ok(text) = std::str::from_utf8(text.data()) else {
                let what = format!("{name}: a value of the column \"{field}\" is not UTF-8 text; name another");
                return Err(Error::NoTextField(what).into());
            };
            sink(Event::Text(text))?;
            sink(Event::EndOfDocument)?;
        }
        let before = file_bytes * seen_rows / column.rows;
        seen_rows = column.rows.min(seen_rows + rows);
        read_bytes.fetch_add(file_bytes * seen_rows / column.rows - before, Ordering::Relaxed);
    }
    Ok(())
}

/// A column of strings, as far as it has been read.
struct Column<'a> {
    /// What the file and the column are called.
    file: &'a str,
    field: &'a str,
    reader: SerializedFileReader<File>,
    index: usize,
    /// Of the file; at least one, to divide by.
    rows: u64,
    /// The group of rows that comes next.
    next_group: usize,
    /// What is left of the group that is being read.
    group: Option<ColumnReaderImpl<ByteArrayType>>,
}

impl<'a> Column<'a> {
    fn open(name: &'a str, file: File, field: &'a str) -> Result<Self, Error> {
        let reader = of_library(name, || SerializedFileReader::new(file))?;
        let metadata = reader.metadata().file_metadata();
        let rows = metadata.num_rows().max(1) as u64;
        let columns = metadata.schema_descr().columns();
        let names: Vec<String> = columns.iter().map(|column| column.path().string()).collect();
        let Some(index) = names.iter().position(|name| name == field) else {
            return Err(Error::NoField { what: format!("{name} has no column \"{field}\""), fields: names });
        };
        Ok(Self { file: name, field, index, rows, next_group: 0, group: None, reader })
    }

    /// The next rows, how many and the strings in them; `None` behind the last.
    fn next_rows(&mut self) -> Result<Option<(u64, Vec<ByteArray>)>, Error> {
        loop {
            if let Some(group) = &mut self.group {
                let (mut texts, mut levels): (Vec<ByteArray>, Vec<i16>) = (Vec::new(), Vec::new());
                let read = || group.read_records(ROWS, Some(&mut levels), None, &mut texts);
                let (rows, _, _) = of_library(self.file, read)?;
                if rows > 0 {
                    return Ok(Some((rows as u64, texts)));
                }
            }
            if self.next_group == self.reader.num_row_groups() {
                return Ok(None);
            }
            self.group = Some(self.group(self.next_group)?);
            self.next_group += 1;
        }
    }

    fn group(&self, number: usize) -> Result<ColumnReaderImpl<ByteArrayType>, Error> {
        let column = || self.reader.get_row_group(number)?.get_column_reader(self.index);
        let ColumnReader::ByteArrayColumnReader(values) = of_library(self.file, column)? else {
            return Err(self.no_text("holds no strings; name another"));
        };
        let schema = self.reader.metadata().file_metadata().schema_descr();
        match schema.column(self.index).max_rep_level() {
            0 => Ok(values),
            _ => Err(self.no_text("holds lists; name one of strings")),
        }
    }

    fn no_text(&self, what: &str) -> Error {
        Error::NoTextField(format!("{}: the column \"{}\" {what}", self.file, self.field))
    }
}

/// Calls the library; its errors, and its panics over damaged files, are errors of the file.
fn of_library<T>(name: &str, call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, Error> {
    let what = || format!("{name} as Parquet; it is damaged or something else: write it again");
    let failed = |source| Error::Unreadable { what: what(), source };
    quietly(call).map_err(|panic| failed(panic.into()))?.map_err(|error| failed(error.into()))
}
