//! `--log-requests`: what was asked and what came of it, a line of JSON each.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ember_cli::terminal;
use serde_json::{Value, json};

/// The file.
pub(super) struct RequestLog {
    path: PathBuf,
    file: Mutex<File>,
    /// Whether it was said that a line could not be written.
    said: Once,
}

impl RequestLog {
    /// Goes on behind what the file holds already.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write --log-requests {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), said: Once::new() })
    }

    /// A line; where it cannot be written that is said, once, and the request goes on all the same.
    pub(super) fn line(&self, mut line: Value) {
        line["time"] = json!(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
        let written =
            self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(format!("{line}\n").as_bytes());
        if let Err(error) = written {
            let path = self.path.display();
            self.said.call_once(|| {
                terminal::say(format_args!(
                    "cannot write --log-requests {path}: {error}; requests are answered, and some are not in it"
                ))
            });
        }
    }
}
