//! A Hugging Face folder: `config.json`, safetensors, `tokenizer.json`.
//!
//! `ember-model` is who opens such folders and says what is wrong with one; here they are the form
//! between formats. What is read is a folder that it has opened, whose shape it says, and what is
//! written is one that it opens.

mod config;
mod read;
mod write;

pub use read::Folder;
pub use write::write;

/// The top-k that a `generation_config.json` means where it samples and names none: what
/// transformers takes there.
pub const TOP_K_WHERE_SAMPLING: u32 = 50;
