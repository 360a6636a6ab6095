//! A temporary folder for readers that need a file.

use std::path::{Path, PathBuf};
use std::{cell::RefCell, fs};

use tempfile::TempDir;

/// Prefix of the folder's name.
pub const PREFIX: &str = "tried-";

thread_local! {
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// Writes a file of this name, alone in the folder, and returns its path.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    folder(&[(name, bytes)]).join(name)
}

/// The folder with these files and no others. Each thread reuses one folder: its old contents are
/// removed.
pub fn folder(files: &[(&str, &[u8])]) -> PathBuf {
    let folder = FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| {
            tempfile::Builder::new().prefix(PREFIX).tempdir().expect("a temporary folder can be made")
        });
        folder.path().to_owned()
    });
    empty(&folder);
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).expect("a temporary file can be written");
    }
    folder
}

fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).expect("the temporary folder can be listed").flatten() {
        let path = entry.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.expect("a temporary file can be removed");
    }
}
