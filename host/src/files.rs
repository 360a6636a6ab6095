//! Files that are written whole or not at all, and the checksum that shows later damage.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::Xxh3Default;

/// Writes a file under a temporary name in the same folder, flushes it to the disk and renames it to `path`, so that a
/// crash or a full disk leaves either the old file or the new one.
///
/// Errors: what `write` returns, or the disk's own, naming `path`.
pub fn write_atomic(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut file = temporary(path)?;
    let mut buffered = BufWriter::with_capacity(1 << 20, file.as_file_mut());
    write(&mut buffered)?;
    buffered.flush().with_context(|| format!("cannot write {}", path.display()))?;
    drop(buffered);
    commit(file, path)
}

/// The xxh3 checksum (64 bits) of a file's content.
pub fn checksum(path: &Path) -> Result<u64> {
    let read = || -> std::io::Result<u64> {
        let mut file = File::open(path)?;
        let mut hash = Xxh3Default::new();
        let mut block = vec![0u8; 1 << 18];
        loop {
            match file.read(&mut block)? {
                0 => return Ok(hash.digest()),
                n => hash.update(&block[..n]),
            }
        }
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

/// What the names of files begin with that are not whole yet.
pub const UNFINISHED: &str = ".unfinished-";

/// A new temporary file beside `path`, deleted again when dropped uncommitted.
pub fn temporary(path: &Path) -> Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions_for_new_file()
        .tempfile_in(folder_of(path))
        .with_context(|| format!("cannot write into {}", folder_of(path).display()))
}

/// Makes a temporary file durable and gives it its name.
pub fn commit(file: NamedTempFile, path: &Path) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    file.as_file().sync_all().with_context(failed)?;
    file.persist(path).map_err(|error| error.error).with_context(failed)?;
    sync_folder(folder_of(path)).with_context(failed)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A rename lasts once its folder is on the disk; Windows has no such call and needs none.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Temporary files are private by default; ours become ordinary files and get the user's ordinary permissions.
trait PermissionsForNewFile {
    fn permissions_for_new_file(&mut self) -> &mut Self;
}

impl PermissionsForNewFile for tempfile::Builder<'_, '_> {
    #[cfg(unix)]
    fn permissions_for_new_file(&mut self) -> &mut Self {
        use std::os::unix::fs::PermissionsExt;
        self.permissions(std::fs::Permissions::from_mode(0o666)) // less the user's umask
    }

    #[cfg(not(unix))]
    fn permissions_for_new_file(&mut self) -> &mut Self {
        self
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
        write_atomic(&path, |out| Ok(out.write_all(b"old")?)).unwrap();
        let failed = write_atomic(&path, |out| {
            out.write_all(b"new")?;
            anyhow::bail!("the disk is full")
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_checksum_is_xxh3_of_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7u8; 1_000_000]).unwrap();
        assert_eq!(checksum(&path).unwrap(), xxhash_rust::xxh3::xxh3_64(&vec![7u8; 1_000_000]));
    }
}
