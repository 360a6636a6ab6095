//! Grammars as the user writes them: a JSON Schema, a regular expression, or a Lark grammar.

use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt::Display, panic::AssertUnwindSafe, time::Duration};

use ember_host::bounded::{Bound, BoundError};
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::{Logger, Matcher};
use llguidance::{derivre::RegexBuilder, panic_utils::catch_unwind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema;
use super::vocabulary::Vocabulary;
use super::width::is_too_wide;
use crate::error::{Cause, DeadEnd};

/// The reason given for a grammar that takes too long.
const TOO_MUCH: &str = "it is too complex to follow; use fewer alternatives and repetitions";

/// Messages of the library about its own limits, which cannot be configured; the last two concern
/// the number of symbols.
const BEYOND_THE_LIBRARY: [&str; 4] = [
    "lexer precomputation failed",
    "limit for this grammar",
    "assertion failed: grammar.symbols.len()",
    "CSymIdx out of range",
];

/// How much of the library's message an error quotes, in characters.
const LONGEST_MESSAGE: usize = 200;

/// How many of the possible next characters an error names.
const MAX_NAMED: usize = 6;

/// Why a grammar cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum GrammarError {
    /// A schema that is not JSON.
    #[error("{grammar} is not JSON: {reason}; give a JSON Schema")]
    NotJson { grammar: String, reason: serde_json::Error },
    /// The grammar allows only the empty text.
    #[error("{grammar} allows the empty text only; give another")]
    OnlyEmpty { grammar: String },
    /// The grammar is invalid, or has something that cannot be enforced.
    #[error("{grammar} cannot be used: {reason}; correct it")]
    Unusable { grammar: String, reason: String },
    /// Grammars before it exceeded the limits of memory or time, and still hold what they took.
    #[error(
        "{grammar} cannot be read: earlier grammars took too much memory or time, and still hold it; try again later, or restart the program"
    )]
    EarlierWork { grammar: String },
    /// No token of the tokenizer fits what it allows.
    #[error(transparent)]
    DeadEnd(#[from] DeadEnd),
    /// There is no tokenizer.
    #[error("{grammar} needs a tokenizer, and the checkpoint holds none")]
    NoTokenizer { grammar: String },
    /// The tokenizer's tokens have no fixed text.
    #[error("{grammar} cannot be followed with this tokenizer")]
    Tokenizer { grammar: String, source: Cause },
}

/// Most bytes of a grammar or schema: the cost of compiling grows with its length.
const MAX_BYTES: usize = 1 << 20;

/// Most bytes of a regular expression, which may cost ten thousand times as much.
const MAX_EXPRESSION_BYTES: usize = 16 << 10;

/// Stack size for compiling the longest grammar: chains of rules are followed recursively, with
/// some three kilobytes each. Stack memory is committed only when it is used.
const STACK_BYTES: usize = 512 << 20;

fn check_length(source: &str, text: &str, most: usize) -> Result<(), GrammarError> {
    let what = format!("it is longer than {} KiB", most >> 10);
    if text.len() > most { Err(unusable(source, what)) } else { Ok(()) }
}

/// Memory and time limits for compiling a grammar or building its lexer. The states of patterns
/// that must all match multiply, and the library counts them only once it has built them. The
/// largest grammars that people write take a tenth.
static WORK: Bound = Bound::new(512 << 20, Duration::from_secs(30), STACK_BYTES, 2);

/// Held while compiling: several at a time would multiply the memory and take the CPU from running
/// generations.
static WORKING: Mutex<()> = Mutex::new(());

/// Runs work that may recurse deeply and take much memory or time, on its own thread with limits.
/// `source` is the grammar's name in errors.
fn bounded<T, E>(source: &str, act: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, GrammarError>
where
    T: Send + 'static,
    E: Display,
{
    let _one_at_a_time = WORKING.lock().unwrap_or_else(PoisonError::into_inner);
    match WORK.run(|| act().map_err(|error| error.to_string())) {
        Ok(done) => done.map_err(|error| unusable(source, error)),
        Err(error) => Err(beyond_bound(source, error)),
    }
}

/// The error of a grammar whose work has no result.
fn beyond_bound(source: &str, error: BoundError) -> GrammarError {
    match error {
        BoundError::Exceeded => unusable(source, TOO_MUCH),
        BoundError::EarlierWork => GrammarError::EarlierWork { grammar: source.to_owned() },
        BoundError::NoThread => unusable(source, error),
    }
}

/// A checked grammar, not yet tied to a tokenizer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grammar {
    source: String,
    rules: TopLevelGrammar,
}

impl Grammar {
    /// JSON that conforms to a [JSON Schema](https://json-schema.org).
    ///
    /// Properties come in the schema's order. At most one space is allowed between the parts of the
    /// text, since small models would fill pages with blanks; llguidance's `x-guidance` in the
    /// schema overrides this. `source` is the grammar's name in errors.
    ///
    /// # Errors
    /// If it is not JSON, not a schema, or has something that cannot be enforced.
    pub fn json_schema(source: impl Into<String>, schema: &str) -> Result<Self, GrammarError> {
        let source = source.into();
        check_length(&source, schema, MAX_BYTES)?;
        let mut schema: Value = match serde_json::from_str(schema) {
            Ok(Value::Bool(true)) => json!({}), // a schema that everything satisfies
            Ok(schema) => schema,
            Err(reason) => return Err(GrammarError::NotJson { grammar: source, reason }),
        };
        schema::prepare(&mut schema).map_err(|reason| unusable(&source, reason))?;
        if let Some(schema) = schema.as_object_mut() {
            schema.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": " " }));
        }
        Self::checked(source, TopLevelGrammar::from_json_schema(schema))
    }

    /// Text that a regular expression matches as a whole, in the [syntax of Rust's regex
    /// crate](https://docs.rs/regex/latest/regex/#syntax), without anchors and look-around.
    /// `source` is the grammar's name in errors.
    ///
    /// # Errors
    /// If it is empty or not such an expression.
    pub fn regex(source: impl Into<String>, expression: &str) -> Result<Self, GrammarError> {
        let source = source.into();
        if expression.is_empty() {
            return Err(GrammarError::OnlyEmpty { grammar: source });
        }
        // Parse it alone first. The library embeds it in a grammar, where the positions in errors
        // would be offset.
        check_length(&source, expression, MAX_EXPRESSION_BYTES)?;
        let alone = expression.to_owned();
        bounded(&source, move || RegexBuilder::new().mk_regex(&alone))?;
        Self::checked(source, TopLevelGrammar::from_regex(expression))
    }

    /// Text that a grammar in llguidance's [variant of
    /// Lark](https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md) derives from
    /// `start`; sampling settings inside it have no effect. `source` is the grammar's name in
    /// errors.
    ///
    /// # Errors
    /// If it is not such a grammar.
    pub fn lark(source: impl Into<String>, grammar: &str) -> Result<Self, GrammarError> {
        let source = source.into();
        check_length(&source, grammar, MAX_BYTES)?;
        let grammar = schema::prepare_within(grammar).map_err(|reason| unusable(&source, reason))?;
        Self::checked(source, TopLevelGrammar::from_lark(grammar))
    }

    /// Its name in errors.
    pub fn source(&self) -> &str {
        &self.source
    }

    fn checked(source: String, rules: TopLevelGrammar) -> Result<Self, GrammarError> {
        let init = GrammarInit::Serialized(rules.clone());
        let compile = || init.to_cgrammar(None, &mut Logger::new(0, 0), ParserLimits::default(), Vec::new());
        let compiled = bounded(&source, || catch_unwind(AssertUnwindSafe(compile)))?;
        if is_too_wide(&compiled) {
            return Err(unusable(&source, TOO_MUCH));
        }
        Ok(Self { source, rules })
    }

    /// A matcher before the first token.
    pub(super) fn matcher(&self, vocabulary: &Vocabulary) -> Result<Matcher, GrammarError> {
        let (factory, rules) = (Arc::clone(vocabulary.factory()), self.rules.clone());
        let parser = bounded(&self.source, move || factory.create_parser(rules))?;
        Ok(Matcher::new(Ok(parser)))
    }

    /// A matcher that reads a text byte by byte, independent of the tokenizer.
    pub(super) fn matcher_of_bytes(&self) -> Result<Matcher, GrammarError> {
        self.matcher(&Vocabulary::of_bytes().map_err(|error| unusable(&self.source, error))?)
    }

    /// The characters that may follow `text`, in words, independent of the tokenizer; `None` if
    /// there are none.
    pub(super) fn characters_after(&self, text: &[u8]) -> Option<String> {
        let mut matcher = self.matcher_of_bytes().ok()?;
        let bytes: Vec<u32> = text.iter().map(|&byte| byte.into()).collect();
        matcher.consume_tokens(&bytes).ok()?;
        let allowed = matcher.compute_mask().ok()?.to_list();
        let ascii = allowed.iter().filter_map(|&id| u8::try_from(id).ok()).filter(u8::is_ascii);
        let mut named: Vec<String> = ascii.map(|byte| format!("{:?}", char::from(byte))).collect();
        if allowed.iter().any(|id| (0x80..=0xff).contains(id)) {
            named.push("a character beyond ASCII".to_owned());
        }
        let more = named.len() > MAX_NAMED;
        named.truncate(MAX_NAMED);
        named.extend(more.then(|| "…".to_owned()));
        (!named.is_empty()).then(|| named.join(" or "))
    }
}

fn unusable(source: &str, error: impl Display) -> GrammarError {
    let mut reason = one_line(error);
    if BEYOND_THE_LIBRARY.iter().any(|words| reason.contains(words)) {
        TOO_MUCH.clone_into(&mut reason);
    }
    GrammarError::Unusable { grammar: source.to_owned(), reason }
}

/// The first line of the library's message, plus the reason that follows a drawing of the position
/// in an expression.
pub(super) fn one_line(error: impl Display) -> String {
    let message = error.to_string();
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines.next().unwrap_or("no reason given").to_owned();
    if let (true, Some(reason)) = (line.ends_with(':'), lines.find_map(|line| line.strip_prefix("error: "))) {
        line = format!("{line} {reason}");
    }
    let mut short: String = line.chars().take(LONGEST_MESSAGE).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grammar_is_not_at_fault_for_those_before_it() {
        let reason = |error| beyond_bound("regex", error).to_string();
        assert!(reason(BoundError::Exceeded).contains("regex cannot be used: it is too complex"));
        assert!(reason(BoundError::EarlierWork).starts_with("regex cannot be read: earlier grammars took too much"));
        let earlier = beyond_bound("regex", BoundError::EarlierWork);
        assert!(matches!(earlier, GrammarError::EarlierWork { grammar } if grammar == "regex"));
    }
}
