//! A file that is only appended to, such as a log: each append is written completely or not at all.
//! If the disk is full, the bytes are kept in memory until there is space.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::LogError;

/// The open file.
pub(super) struct AppendFile {
    pub(super) file: File,
    path: PathBuf,
    /// Bytes that could not be written yet.
    pending: Vec<u8>,
}

impl AppendFile {
    /// Wraps `file`, opened for appending, at `path`.
    pub(super) fn new(file: File, path: PathBuf) -> Self {
        Self { file, path, pending: Vec::new() }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends bytes, in a single write with the pending ones. The error (a full disk) names the
    /// file; the bytes are then pending too.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.pending.extend_from_slice(bytes);
        self.write_pending()
    }

    /// Writes the pending bytes.
    pub(super) fn write_pending(&mut self) -> Result<(), LogError> {
        let length = self.file.metadata().map(|file| file.len());
        let written = self.file.write_all(&self.pending);
        if written.is_ok() {
            self.pending.clear();
        } else if let Ok(length) = length {
            // Removes a partial write, which a reader could not parse.
            let _ = self.file.set_len(length);
        }
        written.map_err(|source| LogError::Append { path: self.path.clone(), source })
    }

    /// Waits until everything is on the disk, safe from a power cut.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        self.write_pending()?;
        self.file.sync_data().map_err(|source| LogError::Append { path: self.path.clone(), source })
    }
}
