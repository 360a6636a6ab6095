//! Room on the disk: asked for before a save, and recognised where it ran out all the same.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Error, Result};

use crate::report::units::bytes;

/// Kept free beside a save, for the logs and pictures of a run: 1 MiB.
const BESIDE: u64 = 1 << 20;

/// A save that the disk has no room for.
#[derive(Debug)]
struct NoRoom {
    needed: u64,
    free: u64,
}

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the disk is full: {} are needed and {} are free", bytes(self.needed), bytes(self.free))
    }
}

impl std::error::Error for NoRoom {}

/// Makes sure that `needed` bytes fit on the disk of `folder`, where the system can be asked.
///
/// # Errors
/// When they do not: the line says how many are free.
pub fn ensure_room(folder: &Path, needed: u64) -> Result<()> {
    match free_bytes(folder) {
        Some(free) if free < needed.saturating_add(BESIDE) => Err(NoRoom { needed: needed + BESIDE, free }.into()),
        _ => Ok(()),
    }
}

/// Whether it was for want of room (a full disk, a used-up quota, a limit on a file's size) that something could not be written.
pub fn is_full(error: &Error) -> bool {
    error.chain().any(|cause| {
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
        cause.is::<NoRoom>() || kind.is_some_and(|kind| full.contains(&kind))
    })
}

/// Bytes that a user without privileges may still write on the disk of `folder`.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Unknown: the save itself will find out.
#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// Bytes of all files in `folder` and below; 0 for one that is not there.
pub fn used_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let of_each = entries.flatten().map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => used_bytes(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    of_each.sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io;

    use anyhow::Context;

    use super::*;

    #[test]
    fn want_of_room_is_told_from_other_failures() {
        let folder = tempfile::tempdir().unwrap();
        ensure_room(folder.path(), 1).unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        fs::write(folder.path().join("a"), [0; 10]).unwrap();
        fs::write(folder.path().join("b/c"), [0; 5]).unwrap();
        assert_eq!(used_bytes(folder.path()), 15);
        if cfg!(unix) {
            let error = ensure_room(folder.path(), 1 << 60).context("could not save").unwrap_err();
            assert!(is_full(&error) && format!("{error:#}").contains("are free"), "{error:#}");
        }
        for (kind, full) in
            [(ErrorKind::StorageFull, true), (ErrorKind::FileTooLarge, true), (ErrorKind::PermissionDenied, false)]
        {
            let error = Error::from(io::Error::from(kind)).context("cannot write a");
            assert_eq!(is_full(&error), full);
        }
    }
}
