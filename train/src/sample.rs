//! What the model writes while it learns: the same prompt and the same noise every time, so that only the model differs.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result};
use ember_data::files::write_atomic;
use ember_data::tokenizer::Tokenizer;
use ember_generate::config::{GenerationConfig, Strategy};
use ember_generate::engine::generate;
use ember_model::Gpt;

use crate::config::TrainConfig;

/// Text that `gpt` (on a device without automatic differentiation) writes after the configured prompt, at temperature 1: a
/// fair look at the distribution it has learned. The prompt is part of the text, an end token is not.
///
/// # Errors
/// When the prompt has a character that the tokenizer does not know.
pub fn text(gpt: &Gpt, tokenizer: &Tokenizer, config: &TrainConfig) -> Result<String> {
    let prompt = prompt(tokenizer, config.sample_prompts.first().map_or("", String::as_str))?;
    let end_tokens: Vec<u32> = tokenizer.end_of_text().into_iter().collect();
    let knobs = GenerationConfig {
        strategy: Strategy::Sample,
        max_new_tokens: config.sample_tokens.max(1),
        end_tokens,
        seed: config.seed,
        ..GenerationConfig::default()
    };
    let completion = generate(gpt, &prompt, &knobs, &mut |_| ControlFlow::Continue(()))?;
    let ids = prompt.into_iter().chain(completion.ids);
    let visible: Vec<u32> = ids.filter(|id| Some(*id) != tokenizer.end_of_text()).collect();
    tokenizer.decode_text(&visible)
}

/// The ids a sample starts from: the prompt's, else the end token that opens every document, else a line end, else token 0.
fn prompt(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    if !text.is_empty() {
        return tokenizer.encode_prompt(text).context("sample_prompts");
    }
    if let Some(end_of_text) = tokenizer.end_of_text() {
        return Ok(vec![end_of_text]);
    }
    Ok(tokenizer.encode("\n").ok().filter(|ids| !ids.is_empty()).unwrap_or_else(|| vec![0]))
}

/// Keeps a sample in the run's folder.
///
/// # Errors
/// When the file cannot be written.
pub fn keep(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    write_atomic(path, |file| Ok(file.write_all(text.as_bytes())?))
}
