//! `metrics.jsonl`: one JSON object a logged step, appended and flushed, so that a killed run keeps what it logged.
//!
//! The file is only ever appended to; resuming cuts it back to the checkpoint's step, so that no step stands twice.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use ember_data::files::write_atomic;
use serde::{Deserialize, Serialize};

/// One line; each key where it applies. Losses are nats per token. A number that is not finite is written as null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Optimizer steps taken.
    pub step: u64,
    /// Mean training loss since the row before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// Loss on the validation split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_loss: Option<f64>,
    /// The built-in stories' entropy on the validation split: no model can be lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy_floor: Option<f64>,
    /// The loss there of the best predictor that forgets earlier sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgetful_loss: Option<f64>,
    /// The rate of this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Global norm of the gradient before clipping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// Target tokens learned from so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Training speed since the row before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Model FLOP utilisation, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfu: Option<f64>,
    /// Memory in use on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Time since the run began, earlier sessions included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_s: Option<f64>,
    /// The new length of a run that keeps to a time, in steps, where it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u64>,
}

/// The open log of a run.
pub struct MetricsLog {
    file: File,
    path: PathBuf,
}

impl MetricsLog {
    /// Opens the log to append to, making it if there is none; the error names the file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path).with_context(|| {
            format!("{}: cannot open the metrics log; check that the run folder may be written to", path.display())
        })?;
        Ok(Self { file, path: path.into() })
    }

    /// Appends one row in a single write; the error (a full disk) names the file.
    pub fn append(&mut self, row: &Row) -> Result<()> {
        let mut line = serde_json::to_string(row)?;
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.flush())
            .with_context(|| format!("{}: cannot append; is the disk full?", self.path.display()))
    }
}

/// Reads every row; a half-written last line, as a kill leaves it, is passed over.
///
/// # Errors
/// A file that cannot be read, or a broken line that is not the last, by its number.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    Ok(lines(path)?.into_iter().map(|(row, _)| row).collect())
}

/// Drops every row after `step`, and a half-written last line; the file is replaced whole or not at all.
///
/// A file that does not exist is an empty log. The errors are those of [`read`], and of writing.
pub fn cut_back(path: &Path, step: u64) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let kept: String =
        lines(path)?.into_iter().filter(|(row, _)| row.step <= step).map(|(_, line)| line + "\n").collect();
    write_atomic(path, |file| Ok(file.write_all(kept.as_bytes())?))
        .with_context(|| format!("{}: cannot cut the log back to step {step}; is the disk full?", path.display()))
}

/// The rows, each with its line as it stands in the file.
fn lines(path: &Path) -> Result<Vec<(Row, String)>> {
    let content = fs::read(path).with_context(|| format!("{}: cannot read the metrics log", path.display()))?;
    let mut rows = Vec::new();
    let count = content.split(|byte| *byte == b'\n').count();
    for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let is_last = index + 1 == count;
        match serde_json::from_slice::<Row>(line) {
            // A last line without its line end may lack digits of its last number even where it parses.
            Ok(row) if !is_last => rows.push((row, String::from_utf8_lossy(line).into_owned())),
            _ if is_last || line.iter().all(u8::is_ascii_whitespace) => {}
            Err(error) => {
                bail!("{}: line {} is not a row of metrics ({error}); remove that line", path.display(), index + 1)
            }
            Ok(_) => {}
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn row(step: u64, val_loss: Option<f64>) -> Row {
        Row { step, train_loss: Some(1.5), val_loss, ..Row::default() }
    }

    proptest! {
        /// However a kill cuts the file short, cutting back keeps exactly the whole rows up to the step, unchanged.
        #[test]
        fn cut_back_keeps_whole_rows_up_to_the_step(
            losses in prop::collection::vec(prop::option::of(0.0f64..12.0), 0..20),
            step in 0u64..220,
            lost in 0usize..200,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("metrics.jsonl");
            let rows: Vec<Row> = losses.iter().enumerate().map(|(i, loss)| row(10 * (i as u64 + 1), *loss)).collect();
            let mut log = MetricsLog::open(&path).unwrap();
            for row in &rows {
                log.append(row).unwrap();
            }
            let mut content = fs::read(&path).unwrap();
            content.truncate(content.len() - lost.min(content.len()));
            let whole = content.iter().filter(|byte| **byte == b'\n').count();
            fs::write(&path, &content).unwrap();

            prop_assert_eq!(read(&path).unwrap(), rows[..whole].to_vec());
            cut_back(&path, step).unwrap();
            let expected: Vec<Row> = rows[..whole].iter().filter(|row| row.step <= step).cloned().collect();
            prop_assert_eq!(read(&path).unwrap(), expected.clone());

            // And the log goes on from there.
            MetricsLog::open(&path).unwrap().append(&row(step + 1, None)).unwrap();
            prop_assert_eq!(read(&path).unwrap().len(), expected.len() + 1);
        }
    }

    #[test]
    fn only_what_applies_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        MetricsLog::open(&path).unwrap().append(&row(3, None)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":3,\"train_loss\":1.5}\n");
    }

    #[test]
    fn a_broken_line_in_the_middle_is_named_and_a_missing_file_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        cut_back(&path, 5).unwrap();
        fs::write(&path, "{\"step\":1}\n{\"st\n{\"step\":2}\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn a_loss_that_is_not_a_number_survives_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        MetricsLog::open(&path).unwrap().append(&row(1, Some(f64::NAN))).unwrap();
        assert_eq!(read(&path).unwrap()[0].val_loss, None);
    }
}
