//! Parquet: one column of strings, a row a document.

use super::{Event, Sink};
use anyhow::{Context, Result, bail, ensure};
use ember_host::panics::quietly;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows decoded at once: few, since each may be a book.
const ROWS: usize = 16;

/// Hands the rows of a column to `sink`; a null is no document. `read_bytes` grows by `file_bytes` as the rows go by.
pub fn read(
    name: &str,
    file: File,
    field: &str,
    file_bytes: u64,
    read_bytes: &AtomicU64,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let failed = || format!("cannot read {name} as Parquet; it is damaged or something else: write it again");
    let reader = quietly(|| SerializedFileReader::new(file)).with_context(failed)?.with_context(failed)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let columns: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
    let Some(index) = columns.iter().position(|column| column == field) else {
        bail!("{name} has no column \"{field}\"; name one of these with --field: {}", columns.join(", "));
    };
    let column = schema.column(index);
    let all_rows = reader.metadata().file_metadata().num_rows().max(1) as u64;
    let mut seen_rows = 0;
    for group in 0..reader.num_row_groups() {
        let column_reader = || reader.get_row_group(group)?.get_column_reader(index);
        let ColumnReader::ByteArrayColumnReader(mut values) =
            quietly(column_reader).with_context(failed)?.with_context(failed)?
        else {
            bail!("{name}: the column \"{field}\" holds no strings; name another with --field");
        };
        ensure!(
            column.max_rep_level() == 0,
            "{name}: the column \"{field}\" holds lists; name one of strings with --field"
        );
        loop {
            let (mut texts, mut levels): (Vec<ByteArray>, Vec<i16>) = (Vec::new(), Vec::new());
            let (records, _, _) = quietly(|| values.read_records(ROWS, Some(&mut levels), None, &mut texts))
                .with_context(failed)?
                .with_context(failed)?;
            if records == 0 {
                break;
            }
            for text in &texts {
                let text = std::str::from_utf8(text.data()).ok().with_context(|| {
                    format!("{name}: a value of the column \"{field}\" is not UTF-8 text; name another with --field")
                })?;
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
