//! Parquet: each row of one column of strings is a document.

mod pages;

use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error, event::Event};
use ember_host::file_error::At;
use ember_host::panics::quietly;
use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;

type Strings = ColumnReaderImpl<ByteArrayType>;

/// Rows decoded at once: few, since each may be a book.
const ROWS: usize = 16;

pub struct Parquet;

const ABOUT: About = About {
    id: "parquet",
    name: "Parquet",
    endings: &[".parquet"],
    document: "one column of a row",
    without: "the other columns; rows where the column is null",
};

impl Reader for Parquet {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        start.bytes.starts_with(b"PAR1")
    }

    fn is_text(&self) -> bool {
        false
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let (name, field) = (content.name(), content.options.field.as_str());
        let file = content.seekable()?;
        let copy = || file.try_clone().at("cannot open", name);
        let (reader, index) = open(name, copy()?, field)?;
        let all_rows = reader.metadata().file_metadata().num_rows().max(1) as u64;
        let mut seen_rows = 0;
        for group in 0..reader.num_row_groups() {
            let mut column = open_column(name, field, reader.metadata(), copy()?, group, index)?;
            while let Some((rows, texts)) = next_rows(name, &mut column)? {
                for text in &texts {
                    let Ok(text) = std::str::from_utf8(text.data()) else {
                        let what = format!("{name}: a value of the column \"{field}\" is not UTF-8 text; name another");
                        return Err(Error::NoTextField(what).into());
                    };
                    sink(Event::Text(text))?;
                    sink(Event::EndOfDocument)?;
                }
                seen_rows = all_rows.min(seen_rows + rows);
                content.report_progress(seen_rows, all_rows);
            }
        }
        Ok(())
    }
}

/// Opens the file; returns the reader, and the index of the column called `field`.
fn open(name: &str, file: File, field: &str) -> Result<(SerializedFileReader<File>, usize), Error> {
    let reader = call_library(name, || SerializedFileReader::new(file))?;
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let fields: Vec<String> = columns.iter().map(|column| column.path().string()).collect();
    match fields.iter().position(|column| column == field) {
        Some(index) => Ok((reader, index)),
        None => Err(Error::NoField { what: format!("{name} has no column \"{field}\""), fields }),
    }
}

/// Opens the column in one row group.
fn open_column(
    name: &str,
    field: &str,
    metadata: &ParquetMetaData,
    file: File,
    group: usize,
    index: usize,
) -> Result<Strings, Error> {
    let no_text = |what| Err(Error::NoTextField(format!("{name}: the column \"{field}\" {what}")));
    let about = metadata.file_metadata().schema_descr().column(index);
    let compression = metadata.row_group(group).columns().get(index).map(|column| column.compression());
    if let Some(Compression::BROTLI(_) | Compression::LZO) = compression {
        let what = "is compressed with brotli or LZO (not supported); write it again with zstd, gzip or snappy";
        return Err(Error::unusable(name, what));
    }
    let column = || {
        let group = metadata.row_group(group);
        let pages = pages::of_column(file, group.column(index), usize::try_from(group.num_rows())?)?;
        Ok(get_column_reader(about.clone(), Box::new(pages)))
    };
    let ColumnReader::ByteArrayColumnReader(column) = call_library(name, column)? else {
        return no_text("holds no strings; name another");
    };
    match about.max_rep_level() {
        0 => Ok(column),
        _ => no_text("holds lists; name one of strings"),
    }
}

/// Reads the next rows: their number and the strings in them, without nulls; `None` after the last.
fn next_rows(name: &str, column: &mut Strings) -> Result<Option<(u64, Vec<ByteArray>)>, Error> {
    let (mut texts, mut levels): (Vec<ByteArray>, Vec<i16>) = (Vec::new(), Vec::new());
    let read = || column.read_records(ROWS, Some(&mut levels), None, &mut texts);
    let (rows, _, _) = call_library(name, read)?;
    Ok((rows > 0).then_some((rows as u64, texts)))
}

/// Calls the library; turns its errors, and its panics on damaged files, into errors of the file.
fn call_library<T>(name: &str, call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, Error> {
    let what = || format!("{name} as Parquet; it is damaged or not Parquet: write it again");
    let failed = |source| Error::Unreadable { what: what(), source };
    quietly(call).map_err(|panic| failed(panic.into()))?.map_err(|error| failed(error.into()))
}
