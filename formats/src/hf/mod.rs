//! A Hugging Face folder: `config.json`, safetensors, `tokenizer.json`.
//!
//! Hugging Face folders serve as the intermediate form between formats. `ember-model` opens and
//! validates such folders: the reader here takes a folder that it has opened, with its shape, and
//! the writer produces a folder that it can open.

mod config;
mod read;
mod write;

pub use read::Folder;
pub use write::write;

/// The top-k of a `generation_config.json` that samples but names none: transformers' default.
pub const TOP_K_WHERE_SAMPLING: u32 = 50;
