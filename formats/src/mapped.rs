//! A file in memory, as far as it is read.

#![allow(unsafe_code)] // a file is mapped

use std::{fs::File, ops::Deref, path::Path, path::PathBuf};

use ember_host::file_error::At;
use memmap2::Mmap;

use crate::error::{FormatError, Result};

/// A file whose bytes come from the disk when they are looked at. A file that somebody cuts short
/// meanwhile ends the process with a signal; programs that save a model write a new file and rename
/// it, ours included.
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
        // Before it is opened: a pipe would be waited for.
        if !std::fs::metadata(path).at("cannot open", path)?.is_file() {
            return Err(FormatError::unsupported(path, "it is no regular file; give the path of a model file"));
        }
        let file = File::open(path).at("cannot open", path)?;
        // SAFETY: the bytes may change while they are read; whatever they are, they are numbers or
        // are checked.
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
