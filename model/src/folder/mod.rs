//! The checkpoint folder: a GPT-2, Llama or Qwen3 folder of Hugging Face's transformers.
//!
//! This module converts `config.json`, `model.safetensors` and `generation_config.json` to a
//! [`GptConfig`] and named float32 tensors, and back, and it protects a folder with checksums. It
//! does not build a model (it uses no tensor library), knows no tokenizer, and leaves it to the
//! caller to give a folder its final name.
//!
//! Hugging Face's own names (`n_positions`, `hidden_size`, `q_proj`, ...) appear only in this
//! folder, in `ember-formats`, and beside the trainer's keys; the public interface uses this
//! project's names for sizes and GPT-2's names, without the `transformer.` prefix, for tensors.

mod checksums;
mod config;
mod error;
mod family;
mod files;
mod gpt2;
mod keys;
mod layout;
mod llama;
mod tensor_file;
mod weights;

#[cfg(test)]
mod checksums_tests;
#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod weights_tests;

use std::{fs, path::Path};

use ember_host::file_error::At;

use crate::GptConfig;

pub use checksums::{
    CARD, seems_intact, verify_checksums, verify_checksums_for_inference, weights_checksum, write_checksums,
};
pub use config::{Settings, read_end_tokens, read_opening, refuse_lost_config};
pub use error::FolderError;
pub use family::Family;
pub use files::refuse_irregular_files;
pub use tensor_file::{NamedTensor, TensorFile, write_tensors};
pub use weights::{StoredWeights, expected_tensors, read_config};

/// Writes `config.json`, `generation_config.json` and `model.safetensors` into `dir`, each flushed
/// to the disk.
///
/// `end_of_text` is the token that opens and ends a text, as GPT-2's `<|endoftext|>` does, and
/// `settings` are more keys of `generation_config.json`; `tensors` are those of
/// [`expected_tensors`], in any order.
///
/// # Errors
/// When a file cannot be written, `tensors` are not the expected ones, or no class of transformers
/// computes such a model ([`Family::of`]).
pub fn write(
    dir: &Path,
    config: &GptConfig,
    end_of_text: Option<u32>,
    settings: &Settings,
    tensors: &[NamedTensor],
) -> Result<(), FolderError> {
    fs::create_dir_all(dir).at("cannot create the folder", dir)?;
    config::write(dir, config, end_of_text)?;
    config::write_generation(dir, end_of_text, settings)?;
    weights::write(dir, config, tensors)
}
