//! Files of a model's folder are regular ones: a pipe in the place of one would be waited for, a device read for ever.

use std::fs;
use std::path::Path;

use super::error::FolderError;
use super::listing::paths;

/// What the names of files that a model is read from end in.
const READ: [&str; 3] = ["json", "safetensors", "txt"];

/// Refuses a folder in which a file that a model is read from is anything but a regular file, or a link to one.
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
