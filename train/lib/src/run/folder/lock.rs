//! The lock of a run's folder: one process at a time trains the run in it.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, thread};

use ember_host::file_error::At;
use ember_host::files::{open_regular, refuse_irregular};

use super::known::LOCK;
use crate::error::FolderError;

/// How long to wait for a lock: a process that only checks whether a run is in use holds it
/// briefly.
pub(super) const LOCK_WAIT: Duration = Duration::from_millis(200);

/// How often to reopen a lock file that was removed after it was opened.
const TRIES: usize = 4;

/// The pause between two attempts to lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The lock of a run's folder, held until it is dropped. The system releases it when the process
/// ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// Whether this process created the file.
    is_new: bool,
}

impl Lock {
    /// Takes the lock of the folder in `path`, whatever is in it, and waits at most `most` for
    /// another process that has it.
    ///
    /// # Errors
    /// When another process holds it, or it cannot be written.
    pub(super) fn take(path: &Path, most: Duration) -> Result<Self, FolderError> {
        for _ in 0..TRIES {
            if let Some(lock) = Self::try_take(path, most)? {
                return Ok(lock);
            }
        }
        Err(FolderError::InUse(path.to_owned()))
    }

    /// One attempt of [`Self::take`]; `None` if the previous owner removed the lock file after it
    /// was opened here: a lock on a removed file excludes nobody.
    fn try_take(path: &Path, most: Duration) -> Result<Option<Self>, FolderError> {
        let file_path = path.join(LOCK);
        let created = File::options().write(true).create_new(true).open(&file_path);
        let is_new = created.is_ok();
        // Not truncated: the name may be a link, in a folder that somebody else created.
        let reopen = || File::options().write(true).create(true).truncate(false).open(&file_path);
        let opened = created.or_else(|_| refuse_irregular(&file_path).and_then(|()| reopen()));
        let lock = Self { file: opened.at("cannot write", &file_path)?, is_new };
        match locked_within(&lock.file, most) {
            Ok(()) => Ok(lock.is_of(path).then_some(lock)),
            Err(TryLockError::WouldBlock) => Err(FolderError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => {
                lock.remove_if_new(path);
                if is_unsupported(&error) {
                    return Err(FolderError::NoLocks(path.to_owned()));
                }
                Ok(Err(error).at("cannot lock", &file_path)?)
            }
        }
    }

    /// Whether `path` still leads to the folder of this lock.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        is_same_file(&self.file, &path.join(LOCK))
    }

    /// Whether a process holds the lock of the folder in `path` now. If none does, this holds a
    /// shared lock for a moment.
    pub(super) fn is_taken(path: &Path) -> bool {
        let lock = open_regular(&path.join(LOCK));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Removes the lock file of the folder in `path` if this process created it, and nobody has
    /// replaced it.
    pub(super) fn remove_if_new(&self, path: &Path) {
        if self.is_new && self.is_of(path) {
            let _ = fs::remove_file(path.join(LOCK));
        }
    }
}

/// Locks a file, waiting at most `most` for another owner.
fn locked_within(file: &File, most: Duration) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < most => thread::sleep(RETRY_INTERVAL),
            tried => return tried,
        }
    }
}

/// Whether an error says that the disk does not support locks, as on some network disks.
fn is_unsupported(error: &io::Error) -> bool {
    const ENOLCK: i32 = if cfg!(target_os = "linux") { 37 } else { 77 };
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
        || error.raw_os_error() == Some(ENOLCK)
}

/// Whether `path` leads to the open file.
#[cfg(unix)]
fn is_same_file(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let both = open.metadata().and_then(|open| Ok((open, path.metadata()?)));
    both.is_ok_and(|(open, there)| (open.dev(), open.ino()) == (there.dev(), there.ino()))
}

/// Whether anything exists at `path`: this system does not tell which file it is.
#[cfg(not(unix))]
fn is_same_file(_open: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ember_host::file_error::with_causes;

    use super::super::{CONFIG, RunFolder};
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_the_lock_is_named_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CONFIG), "").unwrap();
        let pipe = folder.path().join(LOCK);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let line = with_causes(&RunFolder::open(folder.path()).unwrap_err());
        let expected = format!("cannot write {}: it is a pipe, a device or a socket, not a file", pipe.display());
        assert_eq!(line, expected);
        assert!(pipe.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_without_locks_is_told_from_one_that_fails() {
        let [enolck, einval, eopnotsupp, eio] = [37, 22, 95, 5].map(io::Error::from_raw_os_error);
        assert!([enolck, einval, eopnotsupp].iter().all(is_unsupported) && !is_unsupported(&eio));
    }

    #[test]
    fn who_looks_at_a_run_keeps_nobody_from_resuming_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let run = RunFolder::create(&path).unwrap();
        fs::write(run.file(CONFIG), "").unwrap();
        drop(run);
        let looking = File::open(path.join(LOCK)).unwrap();
        looking.try_lock_shared().unwrap();
        thread::scope(|scope| {
            let opened = scope.spawn(|| RunFolder::open(&path).map(drop));
            thread::sleep(LOCK_WAIT / 4);
            drop(looking);
            opened.join().unwrap().unwrap();
        });
        // The process that trains it holds the lock.
        let _trained = RunFolder::open(&path).unwrap();
        assert!(matches!(RunFolder::open(&path), Err(FolderError::InUse(_))));
    }
}
