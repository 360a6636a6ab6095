//! The files of a model's folder: JSON, with errors that name the file, and the folder's contents.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ember_host::file_error::{At, FileError};
use ember_host::files::is_irregular;
use serde_json::{Map, Value};

use super::error::FolderError;

/// Reads a JSON object; an error names the file.
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

/// Extensions of the files that a model is read from.
const EXTENSIONS: [&str; 3] = ["json", "safetensors", "txt"];

/// Rejects a folder in which a file that a model is read from is not a regular file or a link to
/// one: reading a pipe would block, reading a device might never end.
///
/// # Errors
/// When there is such a file, which is named, or the folder cannot be listed.
pub fn refuse_irregular_files(dir: &Path) -> Result<(), FolderError> {
    for path in paths(dir)? {
        let is_read = path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known));
        if is_read && is_irregular(&path) {
            let what = "is a pipe, a device or a socket, not a file; put the model's file there";
            return Err(FolderError::damaged(&path, what));
        }
    }
    Ok(())
}
