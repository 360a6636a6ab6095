//! A log of JSON lines, one object a row, appended and flushed, so that a killed run keeps what it
//! logged.
//!
//! Such a file is only ever appended to; resuming cuts it back, so that no step stands in it twice.

use std::fs::{self, OpenOptions};
use std::path::Path;

use ember_host::files::write_text;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::append::AppendFile;
use crate::error::LogError;

/// The open log.
pub struct Log {
    out: AppendFile,
}

impl Log {
    /// Opens the log to append to, making it if there is none; the error names the file.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        refuse_irregular(path)?;
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let problem = "cannot open; check that the run folder may be written to";
        let file = opened.map_err(|source| LogError::Io { path: path.to_owned(), problem, source })?;
        Ok(Self { out: AppendFile::new(file, path.to_owned()) })
    }

    /// Appends one row. The error (a full disk) names the file; the row is then written with the
    /// next one, or by [`Self::sync`].
    pub fn append(&mut self, row: &impl Serialize) -> Result<(), LogError> {
        self.append_all(std::slice::from_ref(row))
    }

    /// As [`Self::append`], of several rows in a single write: a kill leaves all or none.
    pub fn append_all(&mut self, rows: &[impl Serialize]) -> Result<(), LogError> {
        self.out.append(as_lines(rows)?.as_bytes())
    }

    /// As the [`cut_back`] of a log that is not open, with some rows behind those that stay; what waits is
    /// written first, where there is room.
    pub fn replace(&mut self, keep: impl Fn(&Stepped) -> bool, rows: &[impl Serialize]) -> Result<(), LogError> {
        self.out.write_pending()?;
        let path = self.out.path().to_owned();
        rewrite(&path, keep, &as_lines(rows)?)?;
        *self = Self::open(&path)?; // the file has been replaced
        Ok(())
    }

    /// Waits until what was appended is on the disk, where a power cut leaves it; the error names
    /// the file.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.out.sync()
    }
}

/// What tells the rows of every log apart.
#[derive(Deserialize)]
pub struct Stepped {
    /// What every row has.
    pub step: u64,
    /// What the row of an evaluation has, and no other.
    #[serde(default)]
    pub eval_s: Option<f64>,
}

/// Reads every row; a half-written last line, as a kill leaves it, is passed over. A file that does
/// not exist has no rows.
///
/// # Errors
/// A file that cannot be read, or a broken line that is not the last, by its number.
pub fn read<Row: DeserializeOwned>(path: &Path) -> Result<Vec<Row>, LogError> {
    Ok(lines(path)?.into_iter().map(|(row, _)| row).collect())
}

/// Drops every row to which `keep` says no, and a half-written last line; the file is replaced
/// whole or not at all.
///
/// A file that does not exist is an empty log. The errors are those of [`read`], and of writing.
pub fn cut_back(path: &Path, keep: impl Fn(&Stepped) -> bool) -> Result<(), LogError> {
    if !path.exists() {
        return Ok(());
    }
    rewrite(path, keep, "")
}

/// The same with some lines behind the rows that stay.
fn rewrite(path: &Path, keep: impl Fn(&Stepped) -> bool, more: &str) -> Result<(), LogError> {
    let rows = lines::<Stepped>(path)?.into_iter();
    let kept: String = rows.filter(|(row, _)| keep(row)).map(|(_, line)| line + "\n").collect();
    let written = write_text(path, &(kept + more));
    written.map_err(|error| LogError::CutBack { path: path.to_owned(), source: error })
}

/// Refuses what is there and neither a file nor a link to one: a pipe would be waited for, a device read
/// for ever.
fn refuse_irregular(path: &Path) -> Result<(), LogError> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(LogError::Irregular(path.to_owned())),
        _ => Ok(()),
    }
}

/// Rows, a line each.
fn as_lines(rows: &[impl Serialize]) -> Result<String, LogError> {
    let mut lines = String::new();
    for row in rows {
        lines += &serde_json::to_string(row)?;
        lines.push('\n');
    }
    Ok(lines)
}

/// The rows, each with its line as it stands in the file.
fn lines<Row: DeserializeOwned>(path: &Path) -> Result<Vec<(Row, String)>, LogError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    refuse_irregular(path)?;
    let problem = "cannot read the log";
    let content = fs::read(path).map_err(|source| LogError::Io { path: path.to_owned(), problem, source })?;
    // A last line without its line end may lack digits of its last number even where it parses.
    let whole = content.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = content[..whole].split(|byte| *byte == b'\n').zip(1..);
    let rows = lines.filter(|(line, _)| !line.iter().all(u8::is_ascii_whitespace)).map(|(json, line)| {
        let row = serde_json::from_slice(json).map_err(|reason| LogError::Row { path: path.to_owned(), line, reason });
        Ok((row?, String::from_utf8_lossy(json).into_owned()))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::super::Row;
    use super::*;

    fn row(step: u64, val_loss: Option<f64>) -> Row {
        Row { step, train_loss: Some(1.5), val_loss, ..Row::default() }
    }

    proptest! {
        /// However a kill cuts the file short, cutting back keeps exactly the whole rows up to the
        /// step, unchanged.
        #[test]
        fn cut_back_keeps_whole_rows_up_to_the_step(
            losses in prop::collection::vec(prop::option::of(0.0f64..12.0), 0..20),
            step in 0u64..220,
            lost in 0usize..200,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("metrics.jsonl");
            let rows: Vec<Row> = losses.iter().enumerate().map(|(i, loss)| row(10 * (i as u64 + 1), *loss)).collect();
            let mut log = Log::open(&path).unwrap();
            for row in &rows {
                log.append(row).unwrap();
            }
            let mut content = fs::read(&path).unwrap();
            content.truncate(content.len() - lost.min(content.len()));
            let whole = content.iter().filter(|byte| **byte == b'\n').count();
            fs::write(&path, &content).unwrap();

            prop_assert_eq!(read::<Row>(&path).unwrap(), rows[..whole].to_vec());
            cut_back(&path, |row| row.step <= step).unwrap();
            let expected: Vec<Row> = rows[..whole].iter().filter(|row| row.step <= step).cloned().collect();
            prop_assert_eq!(read::<Row>(&path).unwrap(), expected.clone());

            // And the log goes on from there, also the one whose end was replaced while it was open.
            let mut log = Log::open(&path).unwrap();
            log.append(&row(step + 3, None)).unwrap();
            log.replace(|row| row.step <= step, &[row(step + 1, None), row(step + 1, Some(2.0))]).unwrap();
            log.append_all(&[row(step + 2, None), row(step + 2, Some(1.0))]).unwrap();
            prop_assert_eq!(read::<Row>(&path).unwrap().len(), expected.len() + 4);
        }
    }

    #[test]
    fn a_broken_line_in_the_middle_is_named_and_a_missing_file_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        cut_back(&path, |_| true).unwrap();
        assert_eq!(read::<Row>(&path).unwrap(), []);
        fs::write(&path, "{\"step\":1}\n{\"st\n{\"step\":2}\n").unwrap();
        assert!(read::<Row>(&path).unwrap_err().to_string().contains("line 2"));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_read_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let [device, pipe] = ["device", "pipe"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&device, &pipe, &folder.path().to_owned()] {
            let line = format!("{} is no regular file", path.display());
            assert!(read::<Row>(path).unwrap_err().to_string().starts_with(&line));
            assert!(cut_back(path, |_| true).unwrap_err().to_string().starts_with(&line));
            assert!(Log::open(path).map(drop).unwrap_err().to_string().starts_with(&line));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn rows_wait_until_the_disk_has_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut log = Log::open(&path).unwrap();
        log.append(&row(1, None)).unwrap();
        let disk = std::mem::replace(&mut log.out.file, OpenOptions::new().append(true).open("/dev/full").unwrap());
        for step in [2, 3] {
            assert!(crate::error::Error::from(log.append(&row(step, None)).unwrap_err()).is_full_disk());
        }
        log.out.file = disk;
        log.sync().unwrap();
        assert_eq!(read::<Row>(&path).unwrap(), [1, 2, 3].map(|step| row(step, None)));
    }
}
