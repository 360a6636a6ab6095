//! Constrained decoding: at each step a mask leaves only the tokens that a grammar allows next.
//!
//! A [`Grammar`] is a JSON Schema, a regular expression, or a Lark grammar. Together with a
//! tokenizer it becomes a [`Constraint`], a logits processor like the others: it removes every
//! token after which the text could no longer be completed to a match. End tokens are allowed
//! exactly where the text may end. So a text that ends by itself is valid by construction. A text
//! cut off by a limit need not be valid; [`Constraint::is_accepting`] tells.
//!
//! Grammars work on bytes, but models on tokens, which may split words anywhere. The library
//! [llguidance](https://github.com/guidance-ai/llguidance) runs the grammar's parser over the trie
//! of all tokens' bytes. Only tokens that would make the text invalid are removed: a text may be
//! split into tokens in any way, and the remaining tokens keep the model's relative probabilities.

mod grammar;
mod memo;
mod schema;
mod vocabulary;
mod width;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;

pub use grammar::{Grammar, GrammarError};
pub use vocabulary::Vocabulary;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ember_data::tokenizer::Tokenizer;
use llguidance::{Matcher, api::StopReason};
use toktrie::SimpleVob;

use crate::error::{Cause, DeadEnd, WhyDeadEnd};
use crate::processors::{LogitsProcessor, Step};
use memo::{BUDGET, Memo};

/// Logits are masked in groups, one for each word of the bit set.
const GROUP: usize = u32::BITS as usize;

/// How much of the text an error quotes, in characters.
const MAX_SHOWN: usize = 60;

/// Removes the tokens that a grammar does not allow next.
///
/// The mask depends only on the tokens generated so far. So batch rows, forked beams and draft
/// tokens need no registration. Parser states are memoised, so that the next token costs one step
/// of the parser.
pub struct Constraint {
    grammar: Grammar,
    vocabulary: Arc<Vocabulary>,
    warnings: Vec<String>,
    start: Arc<State>,
    memo: Mutex<Memo<State>>,
    /// Initial matcher for texts without tokens, byte by byte; built on first use.
    of_bytes: OnceLock<Option<Matcher>>,
}

impl Constraint {
    /// Compiles `grammar` for a model of `vocab_size` tokens, of which `tokenizer` may know fewer.
    ///
    /// All `end_tokens` are allowed wherever the text may end; without any, only
    /// [`Self::is_complete`] ends the text. Other special tokens are allowed only where a Lark
    /// grammar names them, and ids without text never.
    ///
    /// # Errors
    /// If the tokenizer's tokens have no fixed text, and as [`Self::of`].
    pub fn new(
        grammar: Grammar,
        tokenizer: &Tokenizer,
        vocab_size: usize,
        end_tokens: &[u32],
    ) -> Result<Self, GrammarError> {
        let unfit = |source: Cause| GrammarError::Tokenizer { grammar: grammar.source().to_owned(), source };
        let vocabulary = Vocabulary::new(tokenizer, vocab_size, end_tokens).map_err(unfit)?;
        Self::of(grammar, Arc::new(vocabulary))
    }

    /// Compiles `grammar` for a vocabulary, which constraints can share.
    ///
    /// # Errors
    /// If the grammar is wrong, or with these tokens allows no text or only the empty one.
    pub fn of(grammar: Grammar, vocabulary: Arc<Vocabulary>) -> Result<Self, GrammarError> {
        let mut matcher = grammar.matcher(&vocabulary)?;
        let warnings = matcher.grammar_warnings();
        let start = Arc::new(State::new(matcher, &vocabulary));
        let (memo, of_bytes) = (Mutex::new(Memo::of(BUDGET)), OnceLock::new());
        let constraint = Self { grammar, vocabulary, warnings, start, memo, of_bytes };
        if constraint.start.allowed.is_zero() {
            return Err(constraint.nothing_left(&[], Vec::new()).into());
        }
        if constraint.start.complete {
            return Err(GrammarError::OnlyEmpty { grammar: constraint.grammar.source().to_owned() });
        }
        Ok(constraint)
    }

    /// The library's warnings about the grammar, one line each, for example what it does not
    /// enforce.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The grammar that the text must follow.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// Whether the text is valid and cannot be extended, so that it ends here, with or without an
    /// end token.
    pub fn is_complete(&self, generated: &[u32]) -> bool {
        self.state(generated).complete
    }

    /// Whether the text is valid as it stands, even if it can be extended; false if a limit cut it
    /// off too early.
    pub fn is_accepting(&self, generated: &[u32]) -> bool {
        self.state(generated).accepting
    }

    /// Whether `text` is valid, however it is split into tokens: for a text that was cut. Texts of
    /// a grammar that names special tokens are not, since those have no text. In a grammar that
    /// counts tokens (`max_tokens`) each byte counts as one.
    pub fn accepts(&self, text: &str) -> bool {
        let Some(mut matcher) = self.of_bytes.get_or_init(|| self.grammar.matcher_of_bytes().ok()).clone() else {
            return false;
        };
        let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.consume_tokens(&bytes).is_ok() && matcher.is_accepting().unwrap_or(false)
    }

    /// The error to report if no token is left after `generated`: what was expected, and why no
    /// token fits. `knobs` are the others that may have removed what the grammar allows.
    pub fn nothing_left(&self, generated: &[u32], knobs: Vec<&'static str>) -> DeadEnd {
        let state = self.state(generated);
        let text = self.text(generated);
        let grammar = self.grammar.source().to_owned();
        let after = if text.is_empty() { String::new() } else { format!(" after {:?}", last_characters(&text)) };
        let why = match (state.allowed.num_set(), &state.trouble, self.grammar.characters_after(&text)) {
            (0, Some(trouble), _) => WhyDeadEnd::Parser { grammar, trouble: trouble.clone() },
            (0, None, Some(characters)) => WhyDeadEnd::Tokenizer { grammar, characters },
            (0, None, None) => WhyDeadEnd::NoText { grammar },
            (allowed, ..) => WhyDeadEnd::Knobs { grammar, allowed, knobs },
        };
        DeadEnd { after, why }
    }

    /// The state after some tokens: memoised, or computed from the longest memoised prefix.
    fn state(&self, generated: &[u32]) -> Arc<State> {
        let ended = generated.iter().position(|id| self.vocabulary.end_tokens().contains(id));
        let generated = &generated[..ended.unwrap_or(generated.len())];
        let mut memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        let mut prefixes = (1..=generated.len()).rev().map(|len| &generated[..len]);
        let known = prefixes.find_map(|prefix| Some((prefix.len(), memo.recall(prefix)?)));
        let (len, state) = known.unwrap_or_else(|| (0, self.start.clone()));
        if len == generated.len() {
            return state;
        }
        let state = Arc::new(state.after(&generated[len..], &self.vocabulary));
        memo.remember(generated.to_vec(), state.clone());
        state
    }

    /// The bytes of the tokens.
    fn text(&self, generated: &[u32]) -> Vec<u8> {
        let text = generated.iter().filter(|id| !self.vocabulary.end_tokens().contains(id));
        text.flat_map(|&id| self.vocabulary.tree().token(id)).copied().collect()
    }
}

impl LogitsProcessor for Constraint {
    fn name(&self) -> &'static str {
        "constraint"
    }

    /// Leaves no finite logit if the grammar allows no token (see [`Constraint::nothing_left`]), or
    /// after a token that was not allowed.
    fn process(&self, step: &Step, logits: &mut [f32]) {
        let state = self.state(step.generated);
        let words = state.allowed.as_slice().iter().copied().chain(std::iter::repeat(0));
        for (group, allowed) in logits.chunks_mut(GROUP).zip(words) {
            if allowed == 0 {
                group.fill(f32::NEG_INFINITY);
            } else if allowed != u32::MAX {
                for (place, logit) in group.iter_mut().enumerate() {
                    if allowed & (1 << place) == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// The parser's state after some tokens, and the tokens allowed next.
struct State {
    matcher: Matcher,
    /// The tokens allowed next, as a bit set; includes end tokens if the text is accepted.
    allowed: SimpleVob,
    accepting: bool,
    complete: bool,
    /// Why the parser gave up, if it did.
    trouble: Option<String>,
}

impl State {
    fn new(mut matcher: Matcher, vocabulary: &Vocabulary) -> Self {
        let tree = vocabulary.tree();
        let accepting = matcher.is_accepting().unwrap_or(false);
        let (allowed, trouble) = match matcher.compute_mask_or_eos() {
            Ok(allowed) => (allowed, None),
            Err(error) => {
                // The library reports an empty set as an error; here it is a valid set, which the
                // caller interprets.
                let nothing_fits = error.to_string().starts_with(&StopReason::NoExtensionBias.to_string());
                (tree.alloc_token_set(), (!nothing_fits).then(|| grammar::one_line(&error)))
            }
        };
        let mut text = allowed.clone();
        text.sub(&tree.eos_token_set());
        Self { matcher, complete: accepting && text.is_zero(), allowed, accepting, trouble }
    }

    /// The state some tokens later; after a token that is not allowed, no token is.
    fn after(&self, added: &[u32], vocabulary: &Vocabulary) -> Self {
        let mut matcher = self.matcher.clone();
        // On an error the matcher keeps it, and its set is then empty.
        let _ = matcher.consume_tokens(added);
        Self::new(matcher, vocabulary)
    }
}

/// The end of a text, shortened to fit a line, with special tokens by name.
fn last_characters(text: &[u8]) -> String {
    let unmarked: Vec<u8> = text.iter().copied().filter(|&byte| byte != vocabulary::MARKER).collect();
    let text = String::from_utf8_lossy(&unmarked);
    let count = text.chars().count();
    if count <= MAX_SHOWN {
        return text.into_owned();
    }
    std::iter::once('…').chain(text.chars().skip(count - MAX_SHOWN)).collect()
}
