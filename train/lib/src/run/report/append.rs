//! A file that is only appended to, such as a log: each append is written completely or not at all.
//! If the disk is full, the bytes are kept in memory until there is space. A network disk may take
//! bytes and find only at a sync, or at the next write, that it has no space for them, so they are
//! kept until a sync.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{io, io::Write, mem};

use crate::error::{LogError, wants_room};

/// An append syncs when so many bytes are not synced yet: they are kept in memory until then.
const MOST_UNSYNCED: usize = 1 << 20;

/// The open file.
pub(super) struct AppendFile {
    pub(super) file: File,
    path: PathBuf,
    /// Bytes that are not in the file yet.
    pending: Vec<u8>,
    /// Bytes written since the last sync.
    unsynced: Vec<u8>,
    /// The length of the file without them, if there are any.
    synced_length: u64,
    /// The length to which the file must be cut before the next write: what is beyond it is pending.
    cut_to: Option<u64>,
}

impl AppendFile {
    /// Wraps `file`, opened for appending, at `path`.
    pub(super) fn new(file: File, path: PathBuf) -> Self {
        Self { file, path, pending: Vec::new(), unsynced: Vec::new(), synced_length: 0, cut_to: None }
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
    fn write_pending(&mut self) -> Result<(), LogError> {
        let written = self.write();
        self.take_back(written)
    }

    fn write(&mut self) -> io::Result<()> {
        self.cut()?;
        if self.unsynced.is_empty() {
            self.synced_length = self.file.metadata()?.len();
        }
        // Unless all of it is written: a reader could not parse a part.
        self.cut_to = Some(self.synced_length + self.unsynced.len() as u64);
        self.file.write_all(&self.pending)?;
        self.cut_to = None;
        self.unsynced.append(&mut self.pending);
        Ok(())
    }

    /// Waits until everything is on the disk, safe from a power cut.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        self.sync_by(File::sync_data)
    }

    /// Like [`Self::sync`], with the call that waits.
    fn sync_by(&mut self, wait: impl FnOnce(&File) -> io::Result<()>) -> Result<(), LogError> {
        self.write_pending()?;
        let synced = wait(&self.file);
        if synced.is_ok() {
            self.unsynced.clear();
        }
        self.take_back(synced)
    }

    /// Passes on the result of a write or a sync. If the disk was full, the bytes since the last
    /// sync are pending again: it may have lost any of them, and it reports that only once.
    fn take_back(&mut self, done: io::Result<()>) -> Result<(), LogError> {
        if !self.unsynced.is_empty() && done.as_ref().is_err_and(wants_room) {
            self.cut_to = Some(self.synced_length);
            self.unsynced.append(&mut self.pending);
            mem::swap(&mut self.unsynced, &mut self.pending);
        }
        if done.is_err() {
            let _ = self.cut(); // if it fails, the next write tries again
        }
        done.map_err(|source| LogError::Append { path: self.path.clone(), source })
    }

    /// Cuts off what is pending.
    fn cut(&mut self) -> io::Result<()> {
        if let Some(length) = self.cut_to {
            if cfg!(windows) {
                // There, a file that is open for appending cannot be cut.
                File::options().write(true).open(&self.path)?.set_len(length)?;
            } else {
                self.file.set_len(length)?;
            }
            self.cut_to = None;
        }
        Ok(())
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

    fn content(log: &AppendFile) -> String {
        std::fs::read_to_string(&log.path).unwrap()
    }

    #[test]
    fn what_a_sync_found_no_room_for_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = new_file(folder.path());
        log.append(b"1\n").unwrap();
        log.sync().unwrap();
        log.append(b"2\n").unwrap();
        log.append(b"3\n").unwrap();
        let path = log.path.clone();
        let lost = log.sync_by(|_| {
            File::options().write(true).open(path)?.set_len(2)?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(Error::from(lost.unwrap_err()).is_full_disk());
        assert_eq!(content(&log), "1\n");
        log.append(b"4\n").unwrap();
        log.sync().unwrap();
        assert_eq!(content(&log), "1\n2\n3\n4\n");
        // Any other failure ends the run, and the file keeps what it has.
        log.append(b"5\n").unwrap();
        assert!(log.sync_by(|_| Err(io::ErrorKind::PermissionDenied.into())).is_err());
        assert_eq!(content(&log), "1\n2\n3\n4\n5\n");
    }

    /// NFS reports that bytes it had taken are lost at the next write, and only there.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_write_found_lost_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = new_file(folder.path());
        let full_disk = || File::options().append(true).open("/dev/full").unwrap();
        log.append(b"1\n").unwrap();
        log.sync().unwrap();
        log.append(b"2\n").unwrap();
        let disk = mem::replace(&mut log.file, full_disk());
        assert!(Error::from(log.append(b"3\n").unwrap_err()).is_full_disk());
        disk.set_len(2).unwrap();
        log.file = disk;
        log.sync().unwrap();
        assert_eq!(content(&log), "1\n2\n3\n");
        // /dev/full cannot be cut; it is the disk that is cut later, so nothing is there twice.
        log.append(b"4\n").unwrap();
        let disk = mem::replace(&mut log.file, full_disk());
        assert!(log.sync_by(|_| Err(io::ErrorKind::StorageFull.into())).is_err());
        log.file = disk;
        assert_eq!(content(&log), "1\n2\n3\n4\n");
        log.append(b"5\n").unwrap();
        log.sync().unwrap();
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
