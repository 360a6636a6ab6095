//! Space on a run's disk: checks it before a save, and measures what a folder uses.

use std::{fs, path::Path};

use crate::error::DiskFull;

/// Kept free after a save, for the logs and pictures of a run: 1 MiB.
const BESIDE: u64 = 1 << 20;

/// Checks that `needed` bytes fit on the disk of `folder`, if the system tells the free space.
///
/// # Errors
/// When they do not; the line says how many bytes are free.
pub fn ensure_room(folder: &Path, needed: u64) -> Result<(), DiskFull> {
    match free_bytes(folder) {
        Some(free) if free < needed.saturating_add(BESIDE) => Err(DiskFull { needed: needed + BESIDE, free }),
        _ => Ok(()),
    }
}

/// Free bytes for an unprivileged user on the disk of `folder`.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Unknown here: a save fails when the disk is full.
#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// Bytes of all files in `folder` and below; 0 if it does not exist.
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
    use std::io::{self, ErrorKind};

    use ember_host::file_error::At;

    use super::*;
    use crate::error::{CheckpointError, Error, LogError};
    use crate::note::line;

    #[test]
    fn want_of_room_is_told_from_other_failures() {
        let folder = tempfile::tempdir().unwrap();
        ensure_room(folder.path(), 1).unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        fs::write(folder.path().join("a"), [0; 10]).unwrap();
        fs::write(folder.path().join("b/c"), [0; 5]).unwrap();
        assert_eq!(used_bytes(folder.path()), 15);
        if cfg!(unix) {
            let full = ensure_room(folder.path(), 1 << 60).unwrap_err();
            let run = folder.path().to_owned();
            let error =
                Error::from(CheckpointError::Save { step: 1, run, latest: None, is_full: true, source: full.into() });
            assert!(error.is_full_disk() && line(&error).contains("are free"), "{error:?}");
        }
        for (kind, full) in
            [(ErrorKind::StorageFull, true), (ErrorKind::FileTooLarge, true), (ErrorKind::PermissionDenied, false)]
        {
            let written: io::Result<()> = Err(kind.into());
            let error = Error::from(written.at("cannot write", "a").unwrap_err());
            assert_eq!(error.is_full_disk(), full);
            let (run, latest) = ("run".into(), Some("run/checkpoints/step-00000008".into()));
            let error =
                CheckpointError::Save { step: 9, run, latest, is_full: full, source: Box::new(error) }.to_string();
            let advice = if full { "free some space" } else { "check that the run folder may be written to," };
            assert!(error.ends_with(&format!("step-00000008 is intact; {advice} and resume)")), "{error}");
            let error = LogError::Append { path: "metrics.jsonl".into(), source: kind.into() }.to_string();
            let question = if full { "is the disk full?" } else { "check that the run folder may be written to" };
            assert_eq!(error, format!("metrics.jsonl: cannot append; {question}"));
        }
    }
}
