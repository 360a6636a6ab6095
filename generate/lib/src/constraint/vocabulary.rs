//! The vocabulary for llguidance: a trie of all tokens' bytes.

use std::{collections::HashSet, sync::Arc};

use ember_data::tokenizer::Tokenizer;
use llguidance::ParserFactory;
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use crate::error::Cause;

/// The library's limit for building a lexer before the first token, in its own unit. A schema of
/// 2,000 words takes a tenth of a second and fits. The unit grows linearly with an expression, but
/// the cost of an expression like `.*.*.*` grows with its square: some seconds at this limit,
/// minutes and gigabytes beyond.
const MAX_FUEL: u64 = 30_000;

/// The first byte of a special token's name in the trie; the byte occurs in no UTF-8 text.
pub(super) const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Longer tokens do not fit into the trie, and are never allowed.
const LONGEST: usize = 1000;

/// A model's tokens as bytes. Building it for 50,000 tokens takes a quarter of a second; it serves
/// any number of constraints.
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    end_tokens: Vec<u32>,
}

impl Vocabulary {
    /// The vocabulary of a model of `vocab_size` tokens, of which `tokenizer` may know fewer;
    /// `end_tokens` end a text.
    ///
    /// # Errors
    /// If the tokenizer's tokens have no fixed text.
    pub fn new(tokenizer: &Tokenizer, vocab_size: usize, end_tokens: &[u32]) -> Result<Self, Cause> {
        let end_tokens: Vec<u32> = end_tokens.iter().copied().filter(|&id| (id as usize) < vocab_size).collect();
        Self::of(&tokens(tokenizer, vocab_size, &end_tokens)?, end_tokens)
    }

    /// A vocabulary in which each token is one byte.
    pub(super) fn of_bytes() -> Result<Self, Cause> {
        let bytes = ApproximateTokEnv::single_byte().tok_trie().clone();
        // The library's own byte tokenizer would extend a text by all that is forced, and some
        // grammars force a text without end.
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(bytes));
        Self::of(&tokens, Vec::new())
    }

    fn of(tokens: &TokEnv, end_tokens: Vec<u32>) -> Result<Self, Cause> {
        let mut factory = ParserFactory::new_simple(tokens)?;
        let limits = factory.quiet().limits_mut();
        (limits.verbose_errors, limits.initial_lexer_fuel) = (false, MAX_FUEL);
        Ok(Self { factory: Arc::new(factory), end_tokens })
    }

    /// The factory of parsers for these tokens.
    pub(super) fn factory(&self) -> &Arc<ParserFactory> {
        &self.factory
    }

    /// The trie of all tokens' bytes.
    pub(super) fn tree(&self) -> &TokTrie {
        self.factory.tok_env().tok_trie()
    }

    /// The tokens that end a text.
    pub(super) fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }
}

/// The trie of a model's tokens: `vocab_size` ids, and after them an artificial end token if there
/// is no real one. Special tokens are in it only by name, and ids without text are not.
///
/// # Errors
/// If tokens of this kind of tokenizer have no fixed text, or only one without its blanks.
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
    // "Approximate" in the library's terms: no tokenization of a text is canonical, so none is
    // forced.
    Ok(Arc::new(ApproximateTokEnv::new(tree)))
}

/// The ids that stand for no text: those that `tokenizer.json` marks as special.
fn special_tokens(tokenizer: &Tokenizer) -> Result<HashSet<u32>, Cause> {
    let json = tokenizer.to_value()?;
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let special = added.filter(|token| token["special"] == true);
    Ok(special.filter_map(|token| token["id"].as_u64()).map(|id| id as u32).collect())
}
