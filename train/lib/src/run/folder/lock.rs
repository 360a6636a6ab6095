//! The lock of a run's folder: one process at a time trains the run in it.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, thread};

use ember_host::file_error::At;
use ember_host::files::remove_unfinished;

use super::{LOCK, LOOKED_AT, RunFolder};
use crate::error::FolderError;

/// A lock's file that was removed since it was opened is opened anew, so often.
const TRIES: usize = 4;

/// How often is tried meanwhile.
const TRIED_EVERY: Duration = Duration::from_millis(10);

impl RunFolder {
    /// Takes the lock of the folder in `path`, whatever is in it, and removes what a process that was
    /// killed left there unfinished; what cannot be removed costs space, nothing else.
    ///
    /// # Errors
    /// When another process holds it, or it cannot be written.
    pub(in crate::run) fn lock(path: &Path) -> Result<Self, FolderError> {
        Self::lock_within(path, LOOKED_AT)
    }

    /// As [`Self::lock`], which waits so long for another process.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub(super) fn lock_within(path: &Path, most: Duration) -> Result<Self, FolderError> {
        for _ in 0..TRIES {
            if let Some(locked) = Self::try_lock(path, most)? {
                return Ok(locked);
            }
        }
        Err(FolderError::InUse(path.to_owned()))
    }

    /// As [`Self::lock`]; `None` where whoever had it removed its file since that was opened: it keeps
    /// nobody out then.
    fn try_lock(path: &Path, most: Duration) -> Result<Option<Self>, FolderError> {
        let file_path = path.join(LOCK);
        let new = File::options().write(true).create_new(true).open(&file_path);
        let made_lock = new.is_ok();
        // Not emptied: the name may be a link, in a folder that somebody else made.
        let lock = new.or_else(|_| File::options().write(true).create(true).truncate(false).open(&file_path));
        let lock = lock.at("cannot write", &file_path)?;
        match locked_within(&lock, most) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => {
                if made_lock {
                    let _ = fs::remove_file(&file_path);
                }
                if knows_no_locks(&error) {
                    return Err(FolderError::NoLocks(path.to_owned()));
                }
                Err(error).at("cannot lock", &file_path)?;
            }
        }
        if !is_same_file(&lock, &file_path) {
            return Ok(None);
        }
        let _ = remove_unfinished(path);
        Ok(Some(Self { made_lock, lock: Some(lock), ..Self::owned_elsewhere(path) }))
    }

    /// Makes sure that the path still leads to the folder whose lock this process holds: what it writes
    /// where that was moved or removed is a run that nobody can resume.
    ///
    /// # Errors
    /// When it leads elsewhere, or nowhere.
    pub(in crate::run) fn ensure_there(&self) -> Result<(), FolderError> {
        match &self.lock {
            Some(lock) if !is_same_file(lock, &self.file(LOCK)) => Err(FolderError::Gone(self.path.clone())),
            _ => Ok(()),
        }
    }

    /// Whether a process owns the run in `path` now. Looking takes nothing from it: a shared lock
    /// is held for a moment, where none else is.
    pub fn is_in_use(path: &Path) -> bool {
        let lock = File::open(path.join(LOCK));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

/// Locks a file, waiting so long for who has it.
fn locked_within(file: &File, most: Duration) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < most => thread::sleep(TRIED_EVERY),
            tried => return tried,
        }
    }
}

/// Whether an error says that the disk knows no locks, as some network disks do not.
fn knows_no_locks(error: &io::Error) -> bool {
    const ENOLCK: i32 = if cfg!(target_os = "linux") { 37 } else { 77 };
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
        || error.raw_os_error() == Some(ENOLCK)
}

/// Whether `path` leads to the file that is open.
#[cfg(unix)]
fn is_same_file(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let both = open.metadata().and_then(|open| Ok((open, path.metadata()?)));
    both.is_ok_and(|(open, there)| (open.dev(), open.ino()) == (there.dev(), there.ino()))
}

/// Whether anything is at `path`: which file it is, is not told here.
#[cfg(not(unix))]
fn is_same_file(_open: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::CONFIG;
    use super::*;

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
            thread::sleep(LOOKED_AT / 4);
            drop(looking);
            opened.join().unwrap().unwrap();
        });
        // Who trains it does.
        let _trained = RunFolder::open(&path).unwrap();
        assert!(matches!(RunFolder::open(&path), Err(FolderError::InUse(_))));
    }
}
