//! Memory-mapped files.

#![allow(unsafe_code)] // memory-mapping a file

use std::{fs::File, ops::Deref, path::Path, path::PathBuf};

use ember_host::file_error::At;
use memmap2::Mmap;

use crate::error::{FormatError, Result};

/// A memory-mapped file. If another process truncates it meanwhile, reading it ends this process:
/// our programs with a line, on Linux, others by a signal. Programs that save a model, ours
/// included, write a new file and rename it.
#[derive(Debug)]
pub struct Mapped {
    path: PathBuf,
    map: Mmap,
}

impl Mapped {
    /// Opens a regular file.
    ///
    /// # Errors
    /// When it cannot be read, or is a pipe or a device.
    pub fn open(path: &Path) -> Result<Self> {
        // Checked before opening, which would block on a pipe.
        if !std::fs::metadata(path).at("cannot open", path)?.is_file() {
            return Err(FormatError::unsupported(path, "it is not a regular file; give the path of a model file"));
        }
        let file = File::open(path).at("cannot open", path)?;
        // SAFETY: the bytes may change while they are read; any bytes are valid as numbers, and
        // everything else is checked.
        let map = unsafe { Mmap::map(&file) }.at("cannot read", path)?;
        Ok(Self { path: path.to_owned(), map })
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
