//! A file that is only appended to, such as a log: each append is written completely or not at all.
//! If the disk is full, the bytes are kept in memory until there is space. A network disk may take
//! bytes and find only at a sync that it has no space for them, so they are kept until then.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{LogError, wants_room};

/// After so many bytes an append syncs, so that no more are kept for a sync.
const MOST_UNSYNCED: usize = 1 << 20;

/// The open file.
pub(super) struct AppendFile {
    pub(super) file: File,
    path: PathBuf,
    /// Bytes that could not be written yet.
    pending: Vec<u8>,
    /// Bytes written since the last sync.
    unsynced: Vec<u8>,
    /// The length of the file without them, if the system told.
    synced_length: Option<u64>,
}

impl AppendFile {
    /// Wraps `file`, opened for appending, at `path`.
    pub(super) fn new(file: File, path: PathBuf) -> Self {
        Self { file, path, pending: Vec::new(), unsynced: Vec::new(), synced_length: None }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends bytes, in a single write with the pending ones. The error (a full disk) names the
    /// file; the bytes are then pending too.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.pending.extend_from_slice(bytes);
        self.write_pending()?;
        if self.unsynced.len() < MOST_UNSYNCED { Ok(()) } else { self.sync() }
    }

    /// Writes the pending bytes.
    pub(super) fn write_pending(&mut self) -> Result<(), LogError> {
        let length = self.file.metadata().map(|file| file.len()).ok();
        let written = self.file.write_all(&self.pending);
        if written.is_ok() {
            if self.unsynced.is_empty() {
                self.synced_length = length;
            }
            self.unsynced.append(&mut self.pending);
        } else if let Some(length) = length {
            // Removes a partial write, which a reader could not parse.
            let _ = self.file.set_len(length);
        }
        written.map_err(|source| LogError::Append { path: self.path.clone(), source })
    }

    /// Waits until everything is on the disk, safe from a power cut.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        self.write_pending()?;
        let synced = self.file.sync_data();
        self.after_sync(synced)
    }

    /// Passes on the result of a sync, after which nothing is pending. If the disk was full, the
    /// bytes since the sync before are pending again: it may have lost any of them.
    fn after_sync(&mut self, synced: io::Result<()>) -> Result<(), LogError> {
        match (&synced, self.synced_length) {
            (Ok(()), _) => self.unsynced.clear(),
            (Err(error), Some(length)) if wants_room(error) && self.file.set_len(length).is_ok() => {
                self.pending.append(&mut self.unsynced);
            }
            _ => {}
        }
        synced.map_err(|source| LogError::Append { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::Error;

    fn new_file(folder: &Path) -> AppendFile {
        let path = folder.join("log");
        AppendFile::new(File::options().append(true).create_new(true).open(&path).unwrap(), path)
    }

    #[test]
    fn what_a_sync_found_no_room_for_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = new_file(folder.path());
        let content = |log: &AppendFile| std::fs::read_to_string(&log.path).unwrap();
        log.append(b"1\n").unwrap();
        log.sync().unwrap();
        log.append(b"2\n").unwrap();
        log.append(b"3\n").unwrap();
        let full = log.after_sync(Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert!(Error::from(full).is_full_disk());
        assert_eq!(content(&log), "1\n");
        log.append(b"4\n").unwrap();
        log.sync().unwrap();
        assert_eq!(content(&log), "1\n2\n3\n4\n");
        // Any other failure ends the run, and the file keeps what it has.
        log.append(b"5\n").unwrap();
        assert!(log.after_sync(Err(io::ErrorKind::PermissionDenied.into())).is_err());
        assert_eq!(content(&log), "1\n2\n3\n4\n5\n");
    }

    #[test]
    fn what_is_kept_for_a_sync_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = new_file(folder.path());
        let half = vec![b'a'; MOST_UNSYNCED / 2];
        log.append(&half).unwrap();
        assert_eq!(log.unsynced.len(), half.len());
        log.append(&half).unwrap();
        assert!(log.unsynced.is_empty());
    }
}
