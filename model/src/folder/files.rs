//! The files of a model's folder: JSON that is read with the file named where it is wrong and
//! written to the disk, and what stands in a folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ember_host::file_error::{At, FileError};
use serde_json::{Map, Value};

use super::error::FolderError;

/// Reads a JSON object, or says which file is not one.
pub fn read_json(path: &Path) -> Result<Map<String, Value>, FolderError> {
    let text = fs::read_to_string(path).at("cannot read", path)?;
    serde_json::from_str(&text).map_err(|source| FolderError::NotJson { path: path.to_owned(), source })
}

/// Writes indented JSON and waits until it is on the disk.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), FolderError> {
    let write = || {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        let mut file = File::create(path)?;
        file.write_all(&text)?;
        file.sync_all()
    };
    write().map_err(FolderError::write(path))
}

/// The paths of all files and folders in `dir`, in no order.
pub fn paths(dir: &Path) -> Result<Vec<PathBuf>, FileError> {
    let paths = || fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>();
    paths().at("cannot list the folder", dir)
}

/// What the names of files that a model is read from end in.
const READ: [&str; 3] = ["json", "safetensors", "txt"];

/// Refuses a folder in which a file that a model is read from is anything but a regular file, or a
/// link to one: a pipe in its place would be waited for, a device read for ever.
///
/// # Errors
/// When there is such a file, which is named, or the folder cannot be listed.
pub fn refuse_irregular_files(dir: &Path) -> Result<(), FolderError> {
    for path in paths(dir)? {
        let is_read = path.extension().is_some_and(|extension| READ.iter().any(|read| extension == *read));
        let is_other = || fs::metadata(&path).is_ok_and(|there| !there.is_file() && !there.is_dir());
        if is_read && is_other() {
            let what = "is a pipe, a device or a socket and no file; put the model's own file there";
            return Err(FolderError::damaged(&path, what));
        }
    }
    Ok(())
}
