//! Parquet: one column of strings, a row a document.

use super::{error::Error, event::Event, event::Sink};
use ember_host::panics::quietly;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::{column::reader::ColumnReader, data_type::ByteArray};
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
    let reader = of_library(name, || SerializedFileReader::new(file))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let columns: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
    let Some(index) = columns.iter().position(|column| column == field) else {
        return Err(Error::NoField { what: format!("{name} has no column \"{field}\""), fields: columns }.into());
    };
    let no_text = |what| Error::NoTextField(format!("{name}: the column \"{field}\" {what}"));
    let all_rows = reader.metadata().file_metadata().num_rows().max(1) as u64;
    let mut seen_rows = 0;
    for group in 0..reader.num_row_groups() {
        let column_reader = || reader.get_row_group(group)?.get_column_reader(index);
        let ColumnReader::ByteArrayColumnReader(mut values) = of_library(name, column_reader)? else {
            return Err(no_text("holds no strings; name another").into());
        };
        if schema.column(index).max_rep_level() > 0 {
            return Err(no_text("holds lists; name one of strings").into());
        }
        loop {
            let (mut texts, mut levels): (Vec<ByteArray>, Vec<i16>) = (Vec::new(), Vec::new());
            let (records, _, _) = of_library(name, || values.read_records(ROWS, Some(&mut levels), None, &mut texts))?;
            if records == 0 {
                break;
            }
            for text in &texts {
                let Ok(text) = std::str::from_utf8(text.data()) else {
                    let what = format!("{name}: a value of the column \"{field}\" is not UTF-8 text; name another");
                    return Err(Error::NoTextField(what).into());
                };
                sink(Event::Text(text))?;
                sink(Event::EndOfDocument)?;
            }
            let before = file_bytes * seen_rows / all_rows;
            seen_rows = all_rows.min(seen_rows + records as u64);
            read_bytes.fetch_add(file_bytes * seen_rows / all_rows - before, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Calls the library; its errors, and its panics over damaged files, are errors of the file.
fn of_library<T>(name: &str, call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, Error> {
    let what = || format!("{name} as Parquet; it is damaged or something else: write it again");
    let failed = |source| Error::Unreadable { what: what(), source };
    quietly(call).map_err(|panic| failed(panic.into()))?.map_err(|error| failed(error.into()))
}
