//! A file that is only ever appended to, such as a log: each piece whole or not at all. What a full
//! disk does not take waits until there is room.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::LogError;

/// The open file.
pub(super) struct AppendFile {
    pub(super) file: File,
    path: PathBuf,
    /// What could not be written yet.
    pending: Vec<u8>,
}

impl AppendFile {
    /// `file` is open to append to and lies at `path`.
    pub(super) fn new(file: File, path: PathBuf) -> Self {
        Self { file, path, pending: Vec::new() }
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends some bytes, in a single write with those that wait. The error (a full disk) names the
    /// file; the bytes wait then, too.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.pending.extend_from_slice(bytes);
        self.write_pending()
    }

    /// Writes what waits.
    pub(super) fn write_pending(&mut self) -> Result<(), LogError> {
        let whole = self.file.metadata().map(|file| file.len());
        let written = self.file.write_all(&self.pending);
        if written.is_ok() {
            self.pending.clear();
        } else if let Ok(whole) = whole {
            // A part that was written would stay in the middle, and who reads it would stumble there.
            let _ = self.file.set_len(whole);
        }
        written.map_err(|source| LogError::Append { path: self.path.clone(), source })
    }

    /// Waits until all of it is on the disk, where a power cut leaves it.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        self.write_pending()?;
        self.file.sync_data().map_err(|source| LogError::Append { path: self.path.clone(), source })
    }
}
