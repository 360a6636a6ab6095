//! The checkpoint folder: a folder of a GPT-2, a Llama or a Qwen3 as Hugging Face's transformers writes and reads it.
//!
//! This module turns `config.json`, `model.safetensors` and `generation_config.json` into a [`GptConfig`] and named
//! float32 tensors, and back, and it guards a folder with checksums. It does not build a model (no tensor library is used
//! here), knows no tokenizer, and leaves to the caller how a folder comes to stand under its final name.
//!
//! Hugging Face's own words (`n_positions`, `hidden_size`, `q_proj`, ...) appear in `gpt2.rs` and `llama.rs` alone;
//! everything handed out uses this project's names for sizes and GPT-2's names, without the `transformer.` prefix, for tensors.

mod checksums;
mod config;
mod error;
mod family;
mod generation;
mod gpt2;
mod llama;
mod regular;
mod tensor_file;
mod weights;

#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use ember_host::file_error::At;
use serde_json::Value;

use crate::GptConfig;

pub use checksums::{verify_checksums, verify_checksums_for_inference, weights_checksum, write_checksums};
pub use error::FolderError;
pub use family::Family;
pub use generation::{Settings, read_end_tokens};
pub use regular::refuse_irregular_files;
pub use tensor_file::{TensorFile, write_tensors};
pub use weights::{StoredWeights, expected_tensors};

/// A tensor on its way between disk and model: its values in row-major order, always float32 in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// GPT-2's name without prefix, such as `h.0.attn.c_attn.weight`.
    pub name: String,
    /// Sizes from the outermost dimension to the innermost; matrices are `[in, out]`, as GPT-2's are.
    pub shape: Vec<usize>,
    /// The product of `shape` many values.
    pub values: Vec<f32>,
}

/// Reads the shape of the model in `dir`.
///
/// A head counts as tied as transformers decides it: `tie_word_embeddings` says so, and not both the embedding and a
/// different head are stored.
///
/// # Errors
/// When `config.json` is missing or malformed, belongs to another kind of model, or asks for something that this model
/// does not compute.
pub fn read_config(dir: &Path) -> Result<GptConfig, FolderError> {
    let (family, mut config) = config::read(dir)?;
    config.tied_head = config.tied_head && weights::head_can_be_tied(dir, family, &config)?;
    if family == Family::Gpt2 && !config.bias {
        config.bias = !weights::biases_are_zeros(dir, family)?;
    }
    Ok(config)
}

/// Writes `config.json`, `generation_config.json` and `model.safetensors` into `dir`, each flushed to the disk.
///
/// `end_of_text` is the token that opens and ends a text, as GPT-2's `<|endoftext|>` does, and `settings` are more keys of
/// `generation_config.json`; `tensors` are those of [`expected_tensors`], in any order.
///
/// # Errors
/// When a file cannot be written, `tensors` are not the expected ones, or no class of transformers computes such a model
/// ([`Family::of`]).
pub fn write(
    dir: &Path,
    config: &GptConfig,
    end_of_text: Option<u32>,
    settings: &Settings,
    tensors: &[NamedTensor],
) -> Result<(), FolderError> {
    fs::create_dir_all(dir).at("cannot create the folder", dir)?;
    config::write(dir, config, end_of_text)?;
    generation::write(dir, end_of_text, settings)?;
    weights::write(dir, config, tensors)
}

/// What is done when the files of a folder are looked for.
const LISTING: &str = "cannot list the folder";

/// Reads a JSON object, or says which file is not one.
fn read_json(path: &Path) -> Result<serde_json::Map<String, Value>, FolderError> {
    let text = fs::read_to_string(path).at("cannot read", path)?;
    serde_json::from_str(&text).map_err(|source| FolderError::NotJson { path: path.to_owned(), source })
}

/// Writes indented JSON and waits until it is on the disk.
fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), FolderError> {
    let write = || {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        let mut file = File::create(path)?;
        file.write_all(&text)?;
        file.sync_all()
    };
    write().map_err(FolderError::write(path))
}
