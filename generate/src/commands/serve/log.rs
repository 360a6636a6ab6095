//! `--log-requests`: what was asked and what came of it, a line of JSON each.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The file.
pub(super) struct RequestLog(Mutex<File>);

impl RequestLog {
    /// Goes on behind what the file holds already.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(Mutex::new(file.with_context(|| format!("cannot write --log-requests {}", path.display()))?)))
    }

    /// A line; where it cannot be written the request goes on all the same.
    pub(super) fn line(&self, mut line: Value) {
        line["time"] = json!(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
        let _ = writeln!(self.0.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
    }
}
