//! What a text may be, as the user wrote it: JSON of a schema, a regular expression, or a Lark grammar.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;

use anyhow::{Result, bail};
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::derivre::RegexBuilder;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv};
use llguidance::{Logger, Matcher, ParserFactory};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use ember_cli::program::UsageError;

/// How much of the library's message an error repeats, in characters.
const LONGEST_MESSAGE: usize = 200;

/// How many of the characters that could follow an error names.
const MOST_NAMED: usize = 6;

/// The form of a text: checked, not yet tied to a tokenizer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grammar {
    source: String,
    rules: TopLevelGrammar,
}

impl Grammar {
    /// JSON that a [JSON Schema](https://json-schema.org) describes.
    ///
    /// The schema's properties come in its order, and between the parts of the text stands at most one space, since small
    /// models would fill pages with blanks; llguidance's `x-guidance` in the schema says otherwise. `source` is what errors
    /// call it.
    ///
    /// # Errors
    /// A [`UsageError`] when it is no JSON, or no schema, or has something that cannot be enforced.
    pub fn json_schema(source: impl Into<String>, schema: &str) -> Result<Self> {
        let source = source.into();
        let mut schema: Value = match serde_json::from_str(schema) {
            Ok(Value::Bool(true)) => json!({}), // a schema that everything fulfils
            Ok(schema) => schema,
            Err(error) => bail!(UsageError::new(format!("{source} is not JSON: {error}; give a JSON Schema"))),
        };
        if let Some(schema) = schema.as_object_mut() {
            schema.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": " " }));
        }
        Self::checked(source, TopLevelGrammar::from_json_schema(schema))
    }

    /// Text that a regular expression matches from its beginning to its end, in the
    /// [syntax of Rust's](https://docs.rs/regex/latest/regex/#syntax), without anchors and look-around.
    ///
    /// # Errors
    /// A [`UsageError`] when it is empty or no such expression.
    pub fn regex(expression: &str) -> Result<Self> {
        let source = format!("--regex {expression:?}");
        if expression.is_empty() {
            bail!(UsageError::new(format!("{source} allows the empty text only; give another")));
        }
        // Alone first: inside a grammar, where the library puts it, errors would count its lines and columns from elsewhere.
        if let Err(error) = RegexBuilder::new().mk_regex(expression) {
            bail!(wrong(&source, error));
        }
        Self::checked(source, TopLevelGrammar::from_regex(expression))
    }

    /// Text that a grammar in llguidance's
    /// [variant of Lark](https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md) derives from `start`; sampling
    /// settings inside it have no effect. `source` is what errors call it.
    ///
    /// # Errors
    /// A [`UsageError`] when it is no such grammar.
    pub fn lark(source: impl Into<String>, grammar: &str) -> Result<Self> {
        Self::checked(source.into(), TopLevelGrammar::from_lark(grammar.to_owned()))
    }

    /// The flag that it came from, with its file or expression: what errors call it.
    pub fn source(&self) -> &str {
        &self.source
    }

    fn checked(source: String, rules: TopLevelGrammar) -> Result<Self> {
        let init = GrammarInit::Serialized(rules.clone());
        let compile = || init.to_cgrammar(None, &mut Logger::new(0, 0), ParserLimits::default(), Vec::new());
        match catch_unwind(AssertUnwindSafe(compile)) {
            Ok(_) => Ok(Self { source, rules }),
            Err(error) => bail!(wrong(&source, error)),
        }
    }

    /// A matcher that stands before the first token.
    pub(super) fn matcher(&self, tokens: &TokEnv) -> Result<Matcher> {
        let mut factory = ParserFactory::new_simple(tokens)?;
        factory.quiet().limits_mut().verbose_errors = false;
        match factory.create_parser(self.rules.clone()) {
            Ok(parser) => Ok(Matcher::new(Ok(parser))),
            Err(error) => bail!(wrong(&self.source, error)),
        }
    }

    /// In words, the characters that may follow `text` whatever the tokenizer; `None` where none may.
    pub(super) fn characters_after(&self, text: &[u8]) -> Option<String> {
        let mut matcher = self.matcher(&ApproximateTokEnv::single_byte_env()).ok()?;
        let bytes: Vec<u32> = text.iter().map(|&byte| byte.into()).collect();
        matcher.consume_tokens(&bytes).ok()?;
        let allowed = matcher.compute_mask().ok()?.to_list();
        let ascii = allowed.iter().filter_map(|&id| u8::try_from(id).ok()).filter(u8::is_ascii);
        let mut named: Vec<String> = ascii.map(|byte| format!("{:?}", char::from(byte))).collect();
        if allowed.iter().any(|id| (0x80..=0xff).contains(id)) {
            named.push("a character beyond ASCII".to_owned());
        }
        let more = named.len() > MOST_NAMED;
        named.truncate(MOST_NAMED);
        named.extend(more.then(|| "…".to_owned()));
        (!named.is_empty()).then(|| named.join(" or "))
    }
}

fn wrong(source: &str, error: impl Display) -> UsageError {
    UsageError::new(format!("{source} cannot be used: {}; correct it", one_line(error)))
}

/// The first line of the library's message, and the reason that follows a drawing of the place in an expression.
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
