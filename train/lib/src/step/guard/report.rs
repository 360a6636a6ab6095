//! The report on a batch that was skipped because its loss or gradient was not finite: one line for
//! the terminal, and a file with all of it.

use std::path::Path;

use ember_data::{tokenizer::Tokenizer, windows::TrainWindows};
use ember_host::files::{make_folder_of, write_text};
use serde::Serialize;

use super::diagnosis::Diagnosis;
use crate::{error::Result, units::counted, units::grouped};

/// Characters of the window's text in the line.
const SHORT: usize = 60;

/// The content of `reports/nonfinite-step-XXXXXXXX.json`: a step that was not taken.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The step that would have been taken.
    pub step: u64,
    /// The batch's mean loss in nats per token; null if it is not finite.
    pub loss: f64,
    /// The gradient's global norm; null if it is not finite.
    pub grad_norm: f64,
    /// The learning rate the step would have had.
    pub learning_rate: f64,
    /// Where the first value that is not finite is; null if only dropout caused it.
    pub found: Option<Diagnosis>,
    /// Batches skipped so far because they were not finite, including this one.
    pub skipped: u64,
    /// How many a run skips at most.
    pub max_skipped_batches: u64,
    /// The windows of the batch.
    pub windows: Vec<Window>,
}

/// One window of the batch.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// Its number in the run.
    pub window: u64,
    /// The token of the training split at which it starts.
    pub start: u64,
    /// Its input tokens as text.
    pub text: String,
}

/// The `count` windows from number `first` on, as text.
///
/// # Errors
/// When the tokens cannot be read.
pub fn windows_as_text(windows: &TrainWindows, first: u64, count: u64, tokenizer: &Tokenizer) -> Result<Vec<Window>> {
    let each = (first..first + count).map(|window| {
        let ids = windows.batch(window, 1)?.inputs;
        let text = tokenizer.decode_text(&ids).unwrap_or_else(|_| format!("{ids:?}"));
        Ok(Window { window, start: windows.window(window), text })
    });
    each.collect()
}

impl Report {
    /// One line for the terminal; `file` has the rest.
    pub fn line(&self, file: &Path) -> String {
        let Self { learning_rate, grad_norm, skipped, max_skipped_batches: most, .. } = self;
        let what = if self.loss.is_finite() { "a gradient" } else { "the loss" };
        let first = match &self.found {
            Some(Diagnosis { layer, tensor, not_finite, values, place, .. }) => {
                let values = grouped(*values as u64);
                format!("first in {layer}, {tensor} {place:?}, {not_finite} of its {values} values")
            }
            None => "without dropout everything is finite".to_owned(),
        };
        let batches = counted(most, "batch");
        let of_those = match skipped {
            skipped if skipped > most => format!("one more than the {batches} that may be skipped"),
            skipped => format!("{skipped} of at most {batches} that may be skipped"),
        };
        let window = self.worst_window();
        let window = window.map(|it| format!("; window {}: \"{}\"", grouped(it.window), self.excerpt(it)));
        format!(
            "step {}: {what} is not finite, so the step is skipped; {first}; learning rate {learning_rate:.2e}, gradient norm \
             {grad_norm:.2}; {of_those}{}; more in {}",
            grouped(self.step),
            window.unwrap_or_default(),
            file.display()
        )
    }

    /// The window in the diagnosis, else the batch's first.
    fn worst_window(&self) -> Option<&Window> {
        let named = self.found.as_ref().and_then(|found| found.window);
        self.windows.iter().find(|window| Some(window.window) == named).or(self.windows.first())
    }

    /// The beginning of a window's text, with control characters escaped.
    fn excerpt(&self, window: &Window) -> String {
        let text: String = window.text.chars().take(SHORT).collect();
        visible(&text) + if text.len() < window.text.len() { "..." } else { "" }
    }

    /// Writes all of it as JSON.
    ///
    /// # Errors
    /// When the file cannot be written; the line names it.
    pub fn write(&self, file: &Path) -> Result<()> {
        make_folder_of(file)?;
        Ok(write_text(file, &(serde_json::to_string_pretty(self)? + "\n"))?)
    }
}

/// Escapes control characters as in source code (`\n` for a line end), so that the text is one
/// line.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn report(found: Option<Diagnosis>) -> Report {
        Report {
            step: 1_057,
            loss: f64::NAN,
            grad_norm: f64::NAN,
            learning_rate: 1e-3,
            found,
            skipped: 1,
            max_skipped_batches: 3,
            windows: vec![
                Window { window: 230, start: 0, text: "fine".to_owned() },
                Window { window: 231, start: 32, text: format!("a \u{1b}[2J\n{}", "x".repeat(100)) },
            ],
        }
    }

    #[test]
    fn the_line_says_where_and_what_in_one_line() {
        let found = Diagnosis {
            layer: "h.0".to_owned(),
            tensor: "h.0.mlp.c_fc.weight".to_owned(),
            not_finite: 3,
            values: 4_096,
            place: vec![3, 5],
            window: Some(231),
            position: Some(2),
        };
        let report = report(Some(found));
        let line = report.line(Path::new("runs/a/reports/nonfinite-step-00001057.json"));
        assert_eq!(
            line,
            format!(
                "step 1,057: the loss is not finite, so the step is skipped; first in h.0, h.0.mlp.c_fc.weight [3, 5], 3 of its \
                 4,096 values; learning rate 1.00e-3, gradient norm NaN; 1 of at most 3 batches \
                 that may be skipped; window 231: \"a \\u{{1b}}[2J\\n{}...\"; more in \
                 runs/a/reports/nonfinite-step-00001057.json",
                "x".repeat(53)
            )
        );
    }

    #[test]
    fn the_file_holds_every_window_and_null_for_what_is_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reports/a.json");
        report(None).write(&file).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert!(value["loss"].is_null() && value["found"].is_null());
        assert_eq!(value["windows"][1]["window"], 231);
        assert!(report(None).line(&file).contains("without dropout"));
    }
}
