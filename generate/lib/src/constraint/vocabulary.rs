//! The tokens as llguidance wants them: the bytes that each one says, in a tree.

use std::{collections::HashSet, sync::Arc};

use ember_data::tokenizer::Tokenizer;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use serde_json::Value;

use crate::error::Cause;

/// What a special token's name begins with in the tree; the byte occurs in no UTF-8 text.
const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Longer tokens do not fit into the tree, and are never allowed.
const LONGEST: usize = 1000;

/// The tree of what a model's tokens say: `vocab_size` ids, and behind them one that stands for the
/// end where no real one does. A special token is there by its name only, and an id without text
/// not at all.
///
/// # Errors
/// When a token of this kind of tokenizer has no fixed text, so that there is nothing to say.
pub(super) fn tokens(tokenizer: &Tokenizer, vocab_size: usize, end_tokens: &[u32]) -> Result<TokEnv, Cause> {
    let special = special_tokens(tokenizer)?;
    let mut words: Vec<Vec<u8>> = (0..vocab_size as u32)
        .map(|id| {
            let text = tokenizer.token_bytes(id).unwrap_or_default();
            if special.contains(&id) || end_tokens.contains(&id) {
                [&[MARKER], text.as_slice()].concat()
            } else if text.contains(&MARKER) || text.len() > LONGEST {
                Vec::new()
            } else {
                text
            }
        })
        .collect();
    if !words.iter().any(|word| !word.is_empty() && word[0] != MARKER) {
        return Err(
            "its tokens have no text of their own; use a model with a tokenizer of characters, bytes or byte pairs"
                .into(),
        );
    }
    let mut ends = end_tokens.to_vec();
    if ends.is_empty() {
        ends.push(vocab_size as u32);
        words.push([&[MARKER], "<end>".as_bytes()].concat());
    }
    let info = TokRxInfo::new(words.len() as u32, ends[0]);
    let tree = TokTrie::from(&info, &words).with_eos_tokens(&ends);
    // Approximate, in the library's words: there is no one right way to cut a text into tokens, so
    // none is forced.
    Ok(Arc::new(ApproximateTokEnv::new(tree)))
}

/// The ids that stand for no text: what `tokenizer.json` marks as special.
fn special_tokens(tokenizer: &Tokenizer) -> Result<HashSet<u32>, Cause> {
    let json: Value = serde_json::from_str(&tokenizer.to_json()?)?;
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let special = added.filter(|token| token["special"] == true);
    Ok(special.filter_map(|token| token["id"].as_u64()).map(|id| id as u32).collect())
}
