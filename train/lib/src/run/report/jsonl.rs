//! A log in JSON Lines, one object a row. Every row is written at once, so that a killed run keeps
//! its log.
//!
//! Rows are only appended; a resume removes the last ones, so that no step occurs twice.

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
    /// Opens the log for appending, and creates it if there is none; the error names the file.
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

    /// Like [`Self::append`], for several rows in a single write: after a kill, all are there or
    /// none.
    pub fn append_all(&mut self, rows: &[impl Serialize]) -> Result<(), LogError> {
        self.out.append(as_lines(rows)?.as_bytes())
    }

    /// Like [`cut_back`] for an open log, and appends `rows` in the same write. Earlier rows are
    /// synced first: the file is read, and the bytes kept for a sync are dropped.
    pub fn replace(&mut self, keep: impl Fn(&Stepped) -> bool, rows: &[impl Serialize]) -> Result<(), LogError> {
        self.out.sync()?;
        let path = self.out.path().to_owned();
        rewrite(&path, keep, &as_lines(rows)?)?;
        *self = Self::open(&path)?; // the file has been replaced
        Ok(())
    }

    /// Waits until all rows are on the disk, safe from a power cut; the error names the file.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.out.sync()
    }
}

/// The keys by which rows of any log are kept or removed.
#[derive(Deserialize)]
pub struct Stepped {
    /// Present in every row.
    pub step: u64,
    /// Present only in the row of an evaluation.
    #[serde(default)]
    pub eval_s: Option<f64>,
}

/// Reads every row; ignores a half-written last line, as a kill leaves it, and lines with zero
/// bytes, which a power cut leaves for what was not on the disk yet. A file that does not exist has
/// no rows.
///
/// # Errors
/// When the file cannot be read, or another line before the last is invalid; the error names its
/// number.
pub fn read<Row: DeserializeOwned>(path: &Path) -> Result<Vec<Row>, LogError> {
    Ok(lines(path, &content(path)?)?.into_iter().map(|(row, _)| row).collect())
}

/// Removes every row for which `keep` is false, and a half-written last line; the file is replaced
/// atomically. If there is nothing to remove, it is not written: the disk may be full.
///
/// A file that does not exist is an empty log. The errors are those of [`read`], and of writing.
pub fn cut_back(path: &Path, keep: impl Fn(&Stepped) -> bool) -> Result<(), LogError> {
    rewrite(path, keep, "")
}

/// Like [`cut_back`], and appends the lines `more`.
fn rewrite(path: &Path, keep: impl Fn(&Stepped) -> bool, more: &str) -> Result<(), LogError> {
    let content = content(path)?;
    let rows = lines::<Stepped>(path, &content)?.into_iter();
    let kept: String = rows.filter(|(row, _)| keep(row)).map(|(_, line)| line + "\n").collect();
    if more.is_empty() && kept.as_bytes() == content {
        return Ok(());
    }
    let written = write_text(path, &(kept + more));
    written.map_err(|error| LogError::CutBack { path: path.to_owned(), source: error })
}

/// Refuses anything but a regular file or a link to one: reading a pipe could block, and a device
/// may be endless.
fn refuse_irregular(path: &Path) -> Result<(), LogError> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(LogError::Irregular(path.to_owned())),
        _ => Ok(()),
    }
}

/// The rows as JSON, one line each.
fn as_lines(rows: &[impl Serialize]) -> Result<String, LogError> {
    let mut lines = String::new();
    for row in rows {
        lines += &serde_json::to_string(row)?;
        lines.push('\n');
    }
    Ok(lines)
}

/// The content of a log; nothing if there is no file.
fn content(path: &Path) -> Result<Vec<u8>, LogError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    refuse_irregular(path)?;
    let problem = "cannot read the log";
    fs::read(path).map_err(|source| LogError::Io { path: path.to_owned(), problem, source })
}

/// The rows in the `content` of the log in `path`, each with its line.
fn lines<Row: DeserializeOwned>(path: &Path, content: &[u8]) -> Result<Vec<(Row, String)>, LogError> {
    // A last line without a line end may lack digits of its last number even if it parses.
    let complete = content.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = content[..complete].split(|byte| *byte == b'\n').zip(1..);
    let rows = lines.filter(|(line, _)| is_row(line)).map(|(json, line)| {
        let row = serde_json::from_slice(json).map_err(|reason| LogError::Row { path: path.to_owned(), line, reason });
        Ok((row?, String::from_utf8_lossy(json).into_owned()))
    });
    rows.collect()
}

/// Whether a line is one that was written. JSON has no zero bytes: where the file system had made
/// the file longer before a power cut, they stand for the rows that did not reach the disk. No
/// checkpoint was saved after those rows, so a resume writes them again.
fn is_row(line: &[u8]) -> bool {
    !line.contains(&0) && !line.iter().all(u8::is_ascii_whitespace)
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
        /// Wherever a kill truncates the file, cutting it back keeps exactly the whole rows up to
        /// the step, unchanged.
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

            // The log continues from there, even if the file was replaced while it was open.
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

    #[test]
    fn zeros_that_a_power_cut_left_are_no_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        for left in ["\0\0\0", "\0\0\0\n", "{\"st\0\0\0ep\":2}\n", "{\"step\":2\0\0\n\0\n\0"] {
            fs::write(&path, format!("{{\"step\":1}}\n{left}")).unwrap();
            assert_eq!(read::<Stepped>(&path).unwrap().len(), 1, "{left:?}");
            cut_back(&path, |_| true).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1}\n", "{left:?}");
        }
        fs::write(&path, "{\"step\":1}\n\0\0{\"step\":2}\n{\"step\":3}\n").unwrap();
        let steps: Vec<u64> = read::<Stepped>(&path).unwrap().iter().map(|row| row.step).collect();
        assert_eq!(steps, [1, 3]);
    }

    #[test]
    fn a_log_that_keeps_all_its_rows_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut log = Log::open(&path).unwrap();
        log.append_all(&[row(1, None), row(2, None)]).unwrap();
        cut_back(&path, |row| row.step <= 2).unwrap();
        // If the file had been replaced, this row would go into the old one.
        log.append(&row(3, None)).unwrap();
        assert_eq!(read::<Row>(&path).unwrap(), [1, 2, 3].map(|step| row(step, None)));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_read_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let [device, pipe] = ["device", "pipe"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&device, &pipe, &folder.path().to_owned()] {
            let line = format!("{} is not a regular file", path.display());
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
        let full = log.append(&row(2, None)).unwrap_err();
        assert!(crate::error::Error::from(full).is_full_disk());
        assert!(log.append(&row(3, None)).is_err(), "/dev/full cannot be cut");
        log.out.file = disk;
        log.sync().unwrap();
        assert_eq!(read::<Row>(&path).unwrap(), [1, 2, 3].map(|step| row(step, None)));
    }
}
