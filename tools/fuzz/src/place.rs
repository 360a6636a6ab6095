//! A folder for readers that want a file: in memory, where the system has such a place.

use std::path::{Path, PathBuf};
use std::{cell::RefCell, fs};

use tempfile::TempDir;

/// What the folder's name begins with.
pub const NAME: &str = "tried-";

thread_local! {
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// A file of this name with these bytes, alone in a folder.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    folder(&[(name, bytes)]).join(name)
}

/// A folder with these files and no others. It is the same one for every input of a thread: what
/// was there before goes.
pub fn folder(files: &[(&str, &[u8])]) -> PathBuf {
    let folder = FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| {
            tempfile::Builder::new().prefix(NAME).tempdir().expect("a temporary folder can be made")
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
