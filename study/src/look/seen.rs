//! How a model will see a text: its tokens, and its validation part.

use ember_data::prepare::{Dataset, Manifest};
use ember_data::tokens;

/// Number of pieces shown, and tokens in each.
const PIECES: usize = 3;
const TOKENS: usize = 160;

/// How a model will see a text.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Seen {
    /// The tokenizer, and why it was chosen.
    pub tokenizer: String,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Bytes of text for each token.
    pub bytes_per_token: f64,
    /// How the validation part is chosen, in words.
    pub split_rule: String,
    /// The share of the bytes that is held out for validation.
    pub held_out: f64,
    /// The share of the held-out stretches that also occur in the training text; `None` if it is
    /// too short to have any.
    pub leakage: Option<f64>,
    /// Pieces of the training text, each as its tokens.
    pub pieces: Vec<Vec<String>>,
    /// The share of the text that was prepared: less than 1 for a large one.
    pub share: f64,
    /// The proposal of `plan`: each line's name and its text; empty if nobody asked.
    pub plan: Vec<(String, String)>,
}

/// How a model will see a prepared text, which is this share of the whole.
///
/// # Errors
/// When the tokens cannot be read.
pub fn seen(dataset: &Dataset, share: f64) -> Result<Seen, tokens::Error> {
    let Manifest { tokenizer, tokenizer_reason, vocab_size, split_rule, report, .. } = &dataset.manifest;
    let train = &dataset.train;
    let starts = (0..PIECES).map(|piece| (2 * piece + 1) * train.len() / (2 * PIECES));
    let piece = |start: usize| -> Result<Vec<String>, tokens::Error> {
        let mut ids = Vec::new();
        train.get(start..train.len().min(start + TOKENS), &mut ids)?;
        Ok(pieces(dataset, &ids))
    };
    let [train_bytes, val_bytes] = report.bytes;
    Ok(Seen {
        tokenizer: format!("{tokenizer} ({tokenizer_reason})"),
        vocab_size: *vocab_size,
        bytes_per_token: report.bytes_per_token,
        split_rule: split_rule.clone(),
        held_out: val_bytes as f64 / (train_bytes + val_bytes).max(1) as f64,
        leakage: Some(report.leakage).filter(|leakage| leakage.stretches > 0).map(|leakage| leakage.share()),
        pieces: starts.map(piece).collect::<Result<_, _>>()?,
        share,
        plan: Vec::new(),
    })
}

/// The text of each token; tokens that are parts of one character are joined.
fn pieces(dataset: &Dataset, ids: &[u32]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut open: Vec<u32> = Vec::new();
    for &id in ids {
        if Some(id) == dataset.manifest.end_of_text {
            texts.push("\u{2014} end of text \u{2014}\n".to_owned());
            open.clear();
            continue;
        }
        open.push(id);
        // A character's first bytes alone are no text yet.
        if let Ok(text) = dataset.tokenizer.decode_text(&open)
            && (!text.contains(char::REPLACEMENT_CHARACTER) || open.len() > 3)
        {
            texts.push(text);
            open.clear();
        }
    }
    texts
}
