//! `--log-requests`: requests and their results as JSON lines.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use ember_cli::terminal;
use serde_json::{Value, json};

/// The log file.
pub(super) struct RequestLog {
    path: PathBuf,
    file: Mutex<File>,
    /// Whether a failure to write was reported.
    reported: Once,
}

impl RequestLog {
    /// Opens the file to append. An existing file must be such a log: another may be the user's
    /// own, named by mistake.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let is_new = !path.metadata().is_ok_and(|there| there.is_file() && there.len() > 0);
        ensure!(
            is_new || is_log(path),
            "--log-requests {}: the file exists and is not a log of requests; name a new file",
            path.display()
        );
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write --log-requests {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), reported: Once::new() })
    }

    /// Writes a line. A failure is reported once, and does not affect the request.
    pub(super) fn line(&self, mut line: Value) {
        line["time"] = json!(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
        let written =
            self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(format!("{line}\n").as_bytes());
        if let Err(error) = written {
            let path = self.path.display();
            self.reported.call_once(|| {
                terminal::say(format_args!(
                    "cannot write --log-requests {path}: {error}; requests are answered, but some are missing in it"
                ))
            });
        }
    }
}

/// Most bytes read of a file's first line to recognize a log.
const MAX_LINE: u64 = 64 << 20;

/// Whether a file begins with a line of a request log.
fn is_log(path: &Path) -> bool {
    let mut first = String::new();
    let read = File::open(path).and_then(|file| BufReader::new(file.take(MAX_LINE)).read_line(&mut first));
    let line = serde_json::from_str::<Value>(&first);
    read.is_ok() && line.is_ok_and(|line| ["prompts", "written_tokens"].iter().all(|key| line.get(key).is_some()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_log_is_gone_on_with_and_nothing_else_is_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for _ in 0..2 {
            RequestLog::open(&at("log")).unwrap().line(json!({ "prompts": [[1]], "written_tokens": 2 }));
        }
        assert_eq!(std::fs::read_to_string(at("log")).unwrap().lines().count(), 2);
        for content in ["a novel\n", "{\"prompts\": []}\n", "[1]\n", "\n"] {
            std::fs::write(at("other"), content).unwrap();
            let error = RequestLog::open(&at("other")).err().unwrap().to_string();
            assert!(error.contains("is not a log of requests"), "{error}");
            assert_eq!(std::fs::read_to_string(at("other")).unwrap(), content);
        }
        std::fs::write(at("empty"), "").unwrap();
        assert!(RequestLog::open(&at("empty")).is_ok());
    }
}
