//! JSON files: read with the file named where it is wrong, written to the disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use ember_host::file_error::At;
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
