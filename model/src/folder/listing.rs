//! What stands in a folder.

use std::path::{Path, PathBuf};
use std::{fs, io};

use ember_host::file_error::{At, FileError};

/// The paths of all files and folders in `dir`, in no order.
pub fn paths(dir: &Path) -> Result<Vec<PathBuf>, FileError> {
    let paths = || fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>();
    paths().at("cannot list the folder", dir)
}
