//! A checkpoint as a file of another program.

use std::path::Path;

use ember_data::tokenizer::{self, Tokenizer};
use ember_formats::{FormatError, NumberType, gguf, hf};
use ember_model::folder::{self, FolderError};

use crate::load::EndTokens;
use crate::named::named;

named! {
    /// A format that a checkpoint is converted to.
    pub Format {
        /// One file for llama.cpp and what stands on it, such as Ollama and LM Studio.
        Gguf = "gguf",
        /// A Hugging Face folder, with its numbers as another type.
        Hf = "hf",
    }
}

/// Why a checkpoint cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message says what it is
pub enum ConvertError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// It cannot be said in the format, or not be written.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// What was converted.
#[derive(Clone, Copy, Debug)]
pub struct Converted {
    /// Whether the checkpoint has a tokenizer.
    pub has_tokenizer: bool,
    /// Whether it has a token that ends a text.
    pub has_end: bool,
}

/// Writes the checkpoint in `folder` to `out`: as `format`, its matrices as `kind`, or where that is
/// not given as float32, and in a Hugging Face folder as they are.
///
/// # Errors
/// When the checkpoint is damaged, the format has no words for it, or `out` cannot be written.
pub fn convert(folder: &Path, format: Format, kind: Option<NumberType>, out: &Path) -> Result<Converted, ConvertError> {
    folder::verify_checksums_for_inference(folder)?;
    // Opened once as for inference, so that what is wrong with it is said as everywhere.
    let shape = folder::StoredWeights::of(folder)?.config;
    let tokenizer = Tokenizer::is_in(folder).then(|| Tokenizer::from_folder(folder)).transpose()?;
    let end_tokens = EndTokens::read(folder, tokenizer.as_ref(), shape.vocab_size)?.ids;
    let has_end = !end_tokens.is_empty();
    let json = tokenizer.as_ref().map(Tokenizer::to_value).transpose()?;
    let opened = hf::Folder::open(folder, json, end_tokens)?;
    let model = opened.model()?;
    match format {
        Format::Gguf => gguf::write(&model, kind.unwrap_or(NumberType::F32), &name_of(out), out)?,
        Format::Hf => hf::write(&model, kind, out)?,
    }
    Ok(Converted { has_tokenizer: tokenizer.is_some(), has_end })
}

/// What a file says its model is called: its own name.
fn name_of(out: &Path) -> String {
    out.file_stem().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}
