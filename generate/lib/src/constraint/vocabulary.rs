//! The tokens as llguidance wants them: the bytes that each one says, in a tree.

use std::{collections::HashSet, sync::Arc};

use ember_data::tokenizer::Tokenizer;
use llguidance::ParserFactory;
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use crate::error::Cause;

/// What the library may spend on a lexer before the first token, in its own measure. A schema of
/// 2,000 words takes a tenth of a second and fits. What it measures grows with an expression, and
/// what an expression like `.*.*.*` takes with its square: some seconds here, minutes and gigabytes
/// beyond.
const MOST_FUEL: u64 = 30_000;

/// What a special token's name begins with in the tree; the byte occurs in no UTF-8 text.
pub(super) const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Longer tokens do not fit into the tree, and are never allowed.
const LONGEST: usize = 1000;

/// What a model's tokens say. To go through all of 50,000 takes a quarter of a second; what was made
/// of them serves any number of constraints.
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    end_tokens: Vec<u32>,
}

impl Vocabulary {
    /// Of a model of `vocab_size` tokens, of which `tokenizer` may know fewer, and of which
    /// `end_tokens` end a text.
    ///
    /// # Errors
    /// When the tokenizer's tokens have no fixed text.
    pub fn new(tokenizer: &Tokenizer, vocab_size: usize, end_tokens: &[u32]) -> Result<Self, Cause> {
        let end_tokens: Vec<u32> = end_tokens.iter().copied().filter(|&id| (id as usize) < vocab_size).collect();
        Self::of(&tokens(tokenizer, vocab_size, &end_tokens)?, end_tokens)
    }

    /// One in which each token is a byte.
    pub(super) fn of_bytes() -> Result<Self, Cause> {
        let bytes = ApproximateTokEnv::single_byte().tok_trie().clone();
        // Its own way would write on what can only follow so, and some grammars force a text that has
        // no end.
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(bytes));
        Self::of(&tokens, Vec::new())
    }

    fn of(tokens: &TokEnv, end_tokens: Vec<u32>) -> Result<Self, Cause> {
        let mut factory = ParserFactory::new_simple(tokens)?;
        let limits = factory.quiet().limits_mut();
        (limits.verbose_errors, limits.initial_lexer_fuel) = (false, MOST_FUEL);
        Ok(Self { factory: Arc::new(factory), end_tokens })
    }

    /// What makes a parser of a grammar for these tokens.
    pub(super) fn factory(&self) -> &Arc<ParserFactory> {
        &self.factory
    }

    /// The tree of all tokens' bytes.
    pub(super) fn tree(&self) -> &TokTrie {
        self.factory.tok_env().tok_trie()
    }

    /// The tokens that end a text.
    pub(super) fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }
}

/// The tree of what a model's tokens say: `vocab_size` ids, and behind them one that stands for the
/// end where no real one does. A special token is there by its name only, and an id without text
/// not at all.
///
/// # Errors
/// When a token of this kind of tokenizer has no fixed text, or one without its blanks.
fn tokens(tokenizer: &Tokenizer, vocab_size: usize, end_tokens: &[u32]) -> Result<TokEnv, Cause> {
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
    if !tokenizer.is_exact() || !words.iter().any(|word| !word.is_empty() && word[0] != MARKER) {
        return Err(
            "its tokens have no exact text of their own; use a model with a tokenizer of characters, bytes or byte pairs"
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
    let json = tokenizer.to_value()?;
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let special = added.filter(|token| token["special"] == true);
    Ok(special.filter_map(|token| token["id"].as_u64()).map(|id| id as u32).collect())
}
