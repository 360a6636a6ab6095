//! Detects the format of a file.

use std::{fs::File, io::Read, path::Path};

use ember_host::file_error::At;

use crate::{Model, error::Result, gguf, llama2c, nanogpt};

/// A model file of another program, memory-mapped.
#[derive(Debug)]
pub enum Source {
    /// llama.cpp's.
    Gguf(gguf::File),
    /// llama2.c's.
    Llama2c(llama2c::File),
    /// nanoGPT's.
    NanoGpt(nanogpt::File),
}

impl Source {
    /// Opens a file, detecting its format by its first bytes and its extension; `None` if the
    /// format is unknown.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let is_called = |end: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(end));
        let begins = beginning(path)?;
        if begins == b"GGUF" || is_called("gguf") {
            return Ok(Some(Self::Gguf(gguf::File::open(path)?)));
        }
        if begins == b"PK\x03\x04" || is_called("pt") {
            return Ok(Some(Self::NanoGpt(nanogpt::File::open(path)?)));
        }
        if begins == llama2c::MAGIC || is_called("bin") {
            return Ok(Some(Self::Llama2c(llama2c::File::open(path)?)));
        }
        Ok(None)
    }

    /// The files that are read.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Gguf(file) => vec![file.path()],
            Self::Llama2c(file) => file.paths().collect(),
            Self::NanoGpt(file) => file.paths().collect(),
        }
    }

    /// The model; its tensors' values stay in the file until they are read.
    ///
    /// # Errors
    /// When the file is damaged, or contains something unsupported.
    pub fn model(&self) -> Result<Model<'_>> {
        match self {
            Self::Gguf(file) => file.model(),
            Self::Llama2c(file) => file.model(),
            Self::NanoGpt(file) => file.model(),
        }
    }
}

/// The first four bytes of a regular file, or fewer if it is shorter; none of any other kind of
/// file, which is not read.
fn beginning(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path.metadata().at("cannot open", path)?.is_file() {
        let file = File::open(path).at("cannot open", path)?;
        file.take(4).read_to_end(&mut bytes).at("cannot read", path)?;
    }
    Ok(bytes)
}
