//! A recipe without its text: what it leaves to the text is chosen as for ten million tokens of it.

use std::path::Path;

use super::{keys::Settings, resolve::TextFacts};
use crate::error::ConfigError;

/// Different tokens where the tokenizer is left to the text.
pub const AUTO_VOCAB_SIZE: usize = 8192;

/// Different tokens that the recipe in `path` will have.
///
/// # Errors
/// When its tokenizer is a file.
pub fn vocab_size(settings: &Settings, path: &Path) -> Result<usize, ConfigError> {
    let tokenizer = settings.data()?.tokenizer;
    let size = match tokenizer.split_once(':') {
        Some(("bpe", size)) => size.parse().ok(),
        None if tokenizer == "auto" => Some(AUTO_VOCAB_SIZE),
        None if tokenizer == "chars" || tokenizer == "bytes" => Some(256),
        _ => None,
    };
    size.ok_or_else(|| ConfigError::VocabSize { recipe: path.to_owned(), tokenizer })
}

/// What is taken to be known of the text.
pub fn facts(vocab_size: usize) -> TextFacts {
    TextFacts { train_tokens: 10_000_000, val_tokens: 1_000_000, vocab_size }
}
