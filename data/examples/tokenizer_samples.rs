//! Saves one tokenizer of each kind with the ids it gives to a few texts;
//! `tools/check_tokenizers.py` compares them with Hugging Face's transformers.
//!
//! `cargo run --release -p ember-data --example tokenizer_samples -- OUT`

use anyhow::{Context, Result};
use ember_data::tokenizer::Tokenizer;
use std::path::PathBuf;

const TEXTS: [&str; 12] = [
    "Mia gave the ball to Tom.",
    " leading and trailing ",
    "two  spaces\n\n\nthree lines\r\n\ttabs",
    "it's 42, isn't it? They'll say 'twas.",
    "naïve café — 北京 🙂 e\u{301} 👩\u{200d}👧",
    "\u{a0}no\u{3000}break\u{2028}spaces",
    "<|endoftext| >",
    "[UNK] <unk> <s> </s> ▁ Ġ",
    " ,. !? n't 's",
    "\u{1}\u{7f}\u{85}\u{ad}",
    "0",
    " ",
];

fn main() -> Result<()> {
    let out = PathBuf::from(std::env::args().nth(1).context("give a folder to write")?);
    let alphabet = TEXTS.iter().flat_map(|text| text.chars()).collect();
    let tokenizers = [
        ("chars", Tokenizer::chars(&alphabet, true)?),
        ("chars-one-document", Tokenizer::chars(&alphabet, false)?),
        ("bytes", Tokenizer::bytes()?),
        ("bpe", Tokenizer::train_bpe(400, TEXTS)?),
    ];
    for (name, tokenizer) in tokenizers {
        let folder = out.join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        tokenizer.save(&folder)?;
        let samples = TEXTS.iter().map(|text| Ok((*text, tokenizer.encode(text)?))).collect::<Result<Vec<_>>>()?;
        let json = serde_json::json!({ "end_of_text": tokenizer.end_of_text(), "samples": samples });
        std::fs::write(folder.join("samples.json"), json.to_string())?;
    }
    Ok(())
}
