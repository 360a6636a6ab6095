//! Constrained decoding: only text that follows a grammar, by asking at each step which tokens may
//! follow.
//!
//! A [`Grammar`] says what the text may be: JSON of a schema, an expression, or a Lark grammar.
//! Together with a tokenizer it becomes a [`Constraint`], a logits processor like the others: it
//! removes every token after which the text could no longer become what the grammar asks for. An
//! end token is left exactly where the text may end. So what ends by itself is valid by
//! construction; what a limit cuts off need not be, which [`Constraint::is_accepting`] tells.
//!
//! The grammar speaks of bytes and the model of tokens that cut words anywhere; the library
//! [llguidance](https://github.com/guidance-ai/llguidance) walks the tree of all tokens' bytes
//! along the grammar's parser. What is removed is never more than what would make the text invalid:
//! a text may be cut into tokens in any way, and between the tokens that stay the model's own
//! proportions hold.

mod grammar;
mod memo;
mod schema;
mod vocabulary;
mod width;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod measure;
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

/// Logits are judged in groups, one for each word of the bit set.
const GROUP: usize = u32::BITS as usize;

/// How much of the text an error repeats, in characters.
const MOST_SHOWN: usize = 60;

/// Removes the tokens that a grammar does not allow next.
///
/// What may follow is a function of the tokens generated so far, whoever asks: rows of a batch,
/// forked beams and tokens that are only tried need no registering. States are remembered, so that
/// the next token costs one step of the parser.
pub struct Constraint {
    grammar: Grammar,
    vocabulary: Arc<Vocabulary>,
    warnings: Vec<String>,
    start: Arc<State>,
    memo: Mutex<Memo<State>>,
    /// Stands before a text that is judged without its tokens; made when the first is.
    of_bytes: OnceLock<Option<Matcher>>,
}

impl Constraint {
    /// The constraint that `grammar` is for a model of `vocab_size` tokens, of which `tokenizer`
    /// may know fewer.
    ///
    /// Of `end_tokens` each is allowed where the text may end; with none of them the text ends by
    /// [`Self::is_complete`] alone. Other special tokens are allowed only where a Lark grammar
    /// names them, and ids without text never.
    ///
    /// # Errors
    /// When the tokenizer's tokens have no fixed text, and as [`Self::of`].
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

    /// The constraint that `grammar` is for the tokens of a vocabulary, which others may share.
    ///
    /// # Errors
    /// When the grammar is wrong, or allows no text at all, or only the empty one, with these tokens.
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

    /// What the library has to say about the grammar, one line each: what it does not enforce, for
    /// example.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What grammar the text must follow.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// Whether the text is valid and nothing can be added to it, so that it ends here, with or
    /// without an end token.
    pub fn is_complete(&self, generated: &[u32]) -> bool {
        self.state(generated).complete
    }

    /// Whether the text is valid as it stands, though it may go on; false for one that a limit has
    /// cut off too early.
    pub fn is_accepting(&self, generated: &[u32]) -> bool {
        self.state(generated).accepting
    }

    /// Whether `text` is valid by itself, in whatever tokens: for a text of which something was taken
    /// away. One whose grammar names special tokens, which are no text, is not; to a grammar that
    /// counts tokens (`max_tokens`) each byte is one.
    pub fn accepts(&self, text: &str) -> bool {
        let Some(mut matcher) = self.of_bytes.get_or_init(|| self.grammar.matcher_of_bytes().ok()).clone() else {
            return false;
        };
        let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.consume_tokens(&bytes).is_ok() && matcher.is_accepting().unwrap_or(false)
    }

    /// The error to report where no token is left after `generated`: what was expected and why no
    /// token says it; `knobs` are those beside the grammar that may have removed what it allows.
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

    /// What may follow: recalled, or worked out from the longest beginning that is remembered.
    fn state(&self, generated: &[u32]) -> Arc<State> {
        let ended = generated.iter().position(|id| self.vocabulary.end_tokens().contains(id));
        let generated = &generated[..ended.unwrap_or(generated.len())];
        let mut memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        let mut beginnings = (1..=generated.len()).rev().map(|len| &generated[..len]);
        let known = beginnings.find_map(|beginning| Some((beginning.len(), memo.recall(beginning)?)));
        let (len, state) = known.unwrap_or_else(|| (0, self.start.clone()));
        if len == generated.len() {
            return state;
        }
        let state = Arc::new(state.after(&generated[len..], &self.vocabulary));
        memo.remember(generated.to_vec(), state.clone());
        state
    }

    /// The bytes that the tokens say.
    fn text(&self, generated: &[u32]) -> Vec<u8> {
        let text = generated.iter().filter(|id| !self.vocabulary.end_tokens().contains(id));
        text.flat_map(|&id| self.vocabulary.tree().token(id)).copied().collect()
    }
}

impl LogitsProcessor for Constraint {
    fn name(&self) -> &'static str {
        "constraint"
    }

    /// Leaves nothing finite where [`Constraint::nothing_left`] is the error, and after a token
    /// that was not allowed.
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

/// Where the parser stands after some tokens, and what may follow.
struct State {
    matcher: Matcher,
    /// The tokens that may follow, as bits; end tokens among them where the text is accepted.
    allowed: SimpleVob,
    accepting: bool,
    complete: bool,
    /// Why the parser gave up, where it did.
    trouble: Option<String>,
}

impl State {
    fn new(mut matcher: Matcher, vocabulary: &Vocabulary) -> Self {
        let tree = vocabulary.tree();
        let accepting = matcher.is_accepting().unwrap_or(false);
        let (allowed, trouble) = match matcher.compute_mask_or_eos() {
            Ok(allowed) => (allowed, None),
            Err(error) => {
                // An empty set is an error to the library; to us it is a set, and the caller says
                // what it means.
                let nothing_fits = error.to_string().starts_with(&StopReason::NoExtensionBias.to_string());
                (tree.alloc_token_set(), (!nothing_fits).then(|| grammar::one_line(&error)))
            }
        };
        let mut text = allowed.clone();
        text.sub(&tree.eos_token_set());
        Self { matcher, complete: accepting && text.is_zero(), allowed, accepting, trouble }
    }

    /// The state some tokens later; after a token that is not allowed nothing is.
    fn after(&self, added: &[u32], vocabulary: &Vocabulary) -> Self {
        let mut matcher = self.matcher.clone();
        // The error stays in the matcher, whose set is then empty.
        let _ = matcher.consume_tokens(added);
        Self::new(matcher, vocabulary)
    }
}

/// The end of a text, short enough for a line; a special token by its name.
fn last_characters(text: &[u8]) -> String {
    let unmarked: Vec<u8> = text.iter().copied().filter(|&byte| byte != vocabulary::MARKER).collect();
    let text = String::from_utf8_lossy(&unmarked);
    let count = text.chars().count();
    if count <= MOST_SHOWN {
        return text.into_owned();
    }
    std::iter::once('…').chain(text.chars().skip(count - MOST_SHOWN)).collect()
}
