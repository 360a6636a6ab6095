//! Parses a model's shape.

use anyhow::{Result, anyhow};
use ember_model::GptConfig;

/// A shape from its name or from its five sizes.
///
/// # Errors
/// When the text is neither, or the shape is impossible.
pub fn shape(text: &str) -> Result<GptConfig> {
    let sizes = match text {
        "gpt2" => "12x12x768x50257x1024",
        "gpt2-medium" => "24x16x1024x50257x1024",
        sizes => sizes,
    };
    let sizes: Option<Vec<usize>> = sizes.split('x').map(|size| size.parse().ok()).collect();
    let sizes: Option<[usize; 5]> = sizes.and_then(|sizes| sizes.try_into().ok());
    let Some([n_layer, n_head, n_embd, vocab_size, context_length]) = sizes else {
        return Err(anyhow!("write gpt2, gpt2-medium, or five sizes such as 6x6x384x65x256"));
    };
    let config = GptConfig::new(vocab_size, context_length, n_layer, n_head, n_embd);
    config.validate()?;
    Ok(config)
}
