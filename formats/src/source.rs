//! Which format a file is of.

use std::{fs::File, io::Read, path::Path};

use ember_host::file_error::At;

use crate::{Model, error::Result, gguf, llama2c, nanogpt};

/// A model file of another program, mapped.
#[derive(Debug)]
pub enum Source {
    /// Of llama.cpp.
    Gguf(gguf::File),
    /// Of llama2.c.
    Llama2c(llama2c::File),
    /// Of nanoGPT.
    NanoGpt(nanogpt::File),
}

impl Source {
    /// Opens a file by what it begins with and by the end of its name; `None` for one that is of no
    /// format known here.
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

    /// The model, whose tensors stand in the file.
    ///
    /// # Errors
    /// When the file is damaged, or holds what is not known here.
    pub fn model(&self) -> Result<Model<'_>> {
        match self {
            Self::Gguf(file) => file.model(),
            Self::Llama2c(file) => file.model(),
            Self::NanoGpt(file) => file.model(),
        }
    }
}

/// The first four bytes of a regular file; fewer of a shorter one, none of any other, which is not
/// read from.
fn beginning(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path.metadata().at("cannot open", path)?.is_file() {
        let file = File::open(path).at("cannot open", path)?;
        file.take(4).read_to_end(&mut bytes).at("cannot read", path)?;
    }
    Ok(bytes)
}
