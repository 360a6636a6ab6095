//! Files that are written whole or not at all, and the checksum that detects later damage.

use crate::file_error::{At, FileError};
use std::io::{self, BufWriter, Read, Write};
use std::{fs::File, path::Path};
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::Xxh3Default;

/// Writes a file under a temporary name in the same folder, flushes it to the disk and renames it
/// to `path`, so that a crash or a full disk leaves either the old file or the new one.
///
/// # Errors
/// The error that `write` returns, or the disk's own, naming `path`.
pub fn write_atomic(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), FileError> {
    fill_and_commit(temporary(path)?, path, write)
}

/// Writes a temporary file and renames it to `path`.
pub(crate) fn fill_and_commit(
    mut file: NamedTempFile,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let mut buffered = BufWriter::with_capacity(1 << 20, file.as_file_mut());
    write(&mut buffered).and_then(|()| buffered.flush()).at("cannot write", path)?;
    drop(buffered);
    commit(file, path)
}

/// Writes a text, as [`write_atomic`] does.
///
/// # Errors
/// The disk's, naming `path`.
pub fn write_text(path: &Path, text: &str) -> Result<(), FileError> {
    write_atomic(path, |file| file.write_all(text.as_bytes()))
}

/// Reads a whole file of at most `most_bytes`, so that a file named by mistake, or a device that
/// never ends, cannot fill the memory. A pipe is read, too, once something writes into it.
///
/// # Errors
/// When it cannot be read or is longer.
pub fn read_whole(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most_bytes {
        true => Err(io::Error::other(format!("it is longer than {} MiB", most_bytes >> 20))),
        false => Ok(bytes),
    }
}

/// Whether there is something at `path`. Unlike [`Path::exists`], it does not say no where nobody
/// knows.
///
/// # Errors
/// When this cannot be found out: without permission, or where the disk fails.
pub fn is_there(path: &Path) -> io::Result<bool> {
    match path.metadata() {
        // Where a file has the name of one of its folders, nothing is there either.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        found => found.map(|_| true),
    }
}

/// Whether `path` leads to a pipe, a device or a socket: opening a pipe may block, and a device may
/// be endless.
pub fn is_irregular(path: &Path) -> bool {
    path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// Refuses a pipe, a device or a socket without opening it.
///
/// # Errors
/// When it is refused.
pub fn refuse_irregular(path: &Path) -> io::Result<()> {
    match is_irregular(path) {
        true => Err(io::Error::other("it is a pipe, a device or a socket, not a file")),
        false => Ok(()),
    }
}

/// Opens a file for reading, and refuses a pipe, a device or a socket without opening it.
///
/// # Errors
/// When it is refused, or cannot be opened.
pub fn open_regular(path: &Path) -> io::Result<File> {
    refuse_irregular(path)?;
    File::open(path)
}

/// Reads a whole file, opened by [`open_regular`].
///
/// # Errors
/// When it is refused, or cannot be read.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole text file, opened by [`open_regular`].
///
/// # Errors
/// When it is refused, cannot be read or is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    io::read_to_string(open_regular(path)?)
}

/// The xxh3 checksum (64 bits) of the content of a file, opened by [`open_regular`].
///
/// # Errors
/// When the file is refused, or cannot be read.
pub fn checksum(path: &Path) -> Result<u64, FileError> {
    let read = || -> io::Result<u64> {
        let mut file = open_regular(path)?;
        let mut hash = Xxh3Default::new();
        let mut block = vec![0u8; 1 << 18];
        loop {
            match file.read(&mut block)? {
                0 => return Ok(hash.digest()),
                n => hash.update(&block[..n]),
            }
        }
    };
    read().at("cannot read", path)
}

/// Prefix of the names of files that are not complete yet.
pub const UNFINISHED: &str = ".unfinished-";

/// A new temporary file beside `path`, deleted when dropped without [`commit`].
///
/// # Errors
/// When it cannot be created.
pub fn temporary(path: &Path) -> Result<NamedTempFile, FileError> {
    // Opened by us: temporary files are private by default, but ours become ordinary files with the
    // user's ordinary permissions; and the library's error would name the temporary file.
    let open = |place: &Path| File::options().read(true).write(true).create_new(true).open(place);
    let made = tempfile::Builder::new().prefix(UNFINISHED).make_in(folder_of(path), open);
    made.at("cannot write", path)
}

/// Flushes a temporary file to the disk and renames it to `path`.
///
/// # Errors
/// The disk's.
pub fn commit(file: NamedTempFile, path: &Path) -> Result<(), FileError> {
    let durable = || -> io::Result<()> {
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        sync_folder(folder_of(path))
    };
    durable().at("cannot write", path)
}

/// Creates the folder of a file, if it does not exist.
///
/// # Errors
/// When it cannot be created.
pub fn make_folder_of(path: &Path) -> Result<(), FileError> {
    std::fs::create_dir_all(folder_of(path)).at("cannot create", folder_of(path))
}

/// Creates a folder, and its parents, if they do not exist; its name survives a power cut.
///
/// # Errors
/// The disk's.
pub fn make_folder(path: &Path) -> io::Result<()> {
    let parent = folder_of(path);
    if !parent.is_dir() {
        make_folder(parent)?;
    }
    std::fs::create_dir_all(path)?;
    // Also if the folder existed: the process that created it may have been killed before syncing.
    sync_folder(parent)
}

/// Removes what an ended process left incomplete in `folder` and its subfolders.
///
/// # Errors
/// The disk's.
pub fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let (entry, is_folder) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?.is_dir())))?;
        let is_unfinished = entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED));
        match (is_unfinished, is_folder) {
            // It may be a complete folder that was renamed to be removed, by a process that was
            // killed before it synced. Sync first: else a power cut could bring back the folder's
            // own name, with half of its files.
            (true, true) => sync_folder(folder).and_then(|()| std::fs::remove_dir_all(entry))?,
            (true, false) => std::fs::remove_file(entry)?,
            (false, true) => remove_unfinished(&entry)?,
            (false, false) => {}
        }
    }
    Ok(())
}

/// The name of a file or folder without its path; `None` if the path ends in no name, such as `/`
/// and `..`.
pub fn name_of(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes names inside a folder survive a power cut: a rename is durable once its folder is on the
/// disk. Windows has no such call and needs none.
///
/// # Errors
/// The disk's.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { impossible_is_ok(File::open(folder).and_then(|folder| folder.sync_all())) } else { Ok(()) }
}

/// The result of syncing a folder, where it counts as success if that is impossible. Some network
/// disks and foreign file systems write folders by themselves and return EINVAL, EBADF or ENOTSUP:
/// nothing is lost, and otherwise nothing could be written there at all. A folder that may be
/// written to but not read cannot be opened for this.
fn impossible_is_ok(synced: io::Result<()>) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    const EBADF: i32 = 9; // on every system that has the call
    match synced {
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => Ok(()),
        Err(error) if error.raw_os_error() == Some(EBADF) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_atomic(&path, |out| out.write_all(b"old")).unwrap();
        let failed = write_atomic(&path, |out| {
            out.write_all(b"new")?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(failed.unwrap_err().source.to_string(), "the disk is full");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_whole_file_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7u8; 3 << 20]).unwrap();
        assert_eq!(read_whole(&path, 3 << 20).unwrap().len(), 3 << 20);
        assert_eq!(read_whole(&path, 2 << 20).unwrap_err().to_string(), "it is longer than 2 MiB");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_read_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let [device, pipe, file] = ["device", "pipe", "file"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&device, &pipe] {
            let checksum = checksum(path).map(drop).map_err(|error| error.source);
            for refused in [read_regular(path).map(drop), read_text(path).map(drop), checksum] {
                assert_eq!(refused.unwrap_err().to_string(), "it is a pipe, a device or a socket, not a file");
            }
        }
        std::fs::write(&file, "text").unwrap();
        assert_eq!((read_regular(&file).unwrap(), read_text(&file).unwrap()), (b"text".to_vec(), "text".to_owned()));
        assert!(!is_irregular(&file) && !is_irregular(folder.path()) && !is_irregular(&folder.path().join("none")));
    }

    #[cfg(unix)]
    #[test]
    fn what_cannot_be_looked_at_is_not_said_to_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let [file, below, missing, circle] =
            ["file", "file/below", "missing", "circle"].map(|name| folder.path().join(name));
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        assert!(is_there(folder.path()).unwrap() && is_there(&file).unwrap());
        assert!(!is_there(&below).unwrap() && !is_there(&missing).unwrap());
        assert!(is_there(&circle).is_err() && !circle.exists());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named_and_nothing_else() {
        let path = tempfile::tempdir().unwrap().path().join("gone").join("file");
        let error = write_atomic(&path, |_| Ok(())).unwrap_err();
        let line = crate::file_error::with_causes(&error);
        assert!(line.contains("file: ") && !line.contains(UNFINISHED), "{line}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_syncs_no_folders_can_be_written_to_and_one_that_fails_is_told() {
        let [einval, ebadf, eopnotsupp, eacces, eio] =
            [22, 9, 95, 13, 5].map(|code| Err(io::Error::from_raw_os_error(code)));
        for impossible in [einval, ebadf, eopnotsupp, eacces] {
            impossible_is_ok(impossible).unwrap();
        }
        assert!(impossible_is_ok(eio).is_err());
    }

    /// To root, which may list any folder, this one is like any other.
    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_listed_can_be_written_to() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let permit = |mode| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        permit(0o300);
        let path = folder.path().join("below/file");
        make_folder(&folder.path().join("below")).unwrap();
        write_text(&path, "text").unwrap();
        write_text(&folder.path().join("file"), "text").unwrap();
        permit(0o700); // so that it can be removed
    }

    #[cfg(unix)]
    #[test]
    fn a_file_has_the_permissions_of_any_other() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [ours, other] = ["ours", "other"].map(|name| folder.path().join(name));
        write_atomic(&ours, |_| Ok(())).unwrap();
        File::create(&other).unwrap();
        let [ours, other] = [ours, other].map(|path| path.metadata().unwrap().permissions().mode());
        assert_eq!(ours, other);
    }

    #[test]
    fn the_checksum_is_xxh3_of_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7u8; 1_000_000]).unwrap();
        assert_eq!(checksum(&path).unwrap(), xxhash_rust::xxh3::xxh3_64(&vec![7u8; 1_000_000]));
    }
}
