//! A chooser that parses: it follows a text and recovers the choices that made it.

use super::{grammar::Chooser, grammar::Words, lexicon::Kind};

/// Why a text is not one of our stories.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum ParseError {
    /// The text leaves the grammar.
    #[error("not one of the built-in stories: at byte {offset}, expected {expected}")]
    NotGrammar { offset: usize, expected: String },
    /// The sentence is well formed but contradicts the story so far.
    #[error("the {kind} \"{found}\" at byte {offset} contradicts the story so far, {}", contradiction(expected))]
    Inconsistent { offset: usize, kind: Kind, found: &'static str, expected: Vec<&'static str> },
}

fn contradiction(expected: &[&str]) -> String {
    match expected {
        [one] => format!("which makes it \"{one}\""),
        [one, other] => format!("which makes it \"{one}\" or \"{other}\""),
        _ => "where it is taken already".to_owned(),
    }
}

/// The result of [`parse`](super::parse).
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The choices in order, each as an index among the options there.
    pub choices: Vec<usize>,
    /// -ln P(text), including the end.
    pub nats: f64,
    /// -ln of the forgetful predictor's probability of the text, including the end.
    pub forgetful_nats: f64,
}

/// Reads a story and recovers its choices.
pub(super) struct Follow<'a> {
    text: &'a str,
    offset: usize,
    pub choices: Vec<usize>,
}

impl<'a> Follow<'a> {
    pub fn new(text: &'a str) -> Self {
        Follow { text, offset: 0, choices: Vec::new() }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    /// An error unless the whole text has been read.
    pub fn finish(&self) -> Result<(), ParseError> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end of the story".to_owned())) }
    }

    fn expected(&self, expected: String) -> ParseError {
        ParseError::NotGrammar { offset: self.offset, expected }
    }
}

impl Chooser for Follow<'_> {
    type Error = ParseError;

    fn say(&mut self, text: &'static str) -> Result<(), ParseError> {
        if !self.rest().starts_with(text) {
            return Err(self.expected(format!("\"{text}\"")));
        }
        self.offset += text.len();
        Ok(())
    }

    /// The longest phrase that fits, so that the empty phrase is chosen only if no other fits.
    fn phrase(&mut self, phrases: &[&'static str]) -> Result<usize, ParseError> {
        let fits = (0..phrases.len()).filter(|&i| self.rest().starts_with(phrases[i]));
        let Some(chosen) = fits.max_by_key(|&i| phrases[i].len()) else {
            return Err(self.expected(format!("one of {phrases:?}")));
        };
        self.offset += phrases[chosen].len();
        self.choices.push(chosen);
        Ok(chosen)
    }

    fn word(&mut self, kind: Kind, allowed: Words) -> Result<usize, ParseError> {
        let words = kind.words();
        let Some(word) = words.iter().position(|word| self.rest().starts_with(word)) else {
            return Err(self.expected(format!("a {kind}")));
        };
        let Some(choice) = allowed.iter().position(|other| other == word) else {
            return Err(ParseError::Inconsistent {
                offset: self.offset,
                kind,
                found: words[word],
                expected: allowed.iter().map(|word| words[word]).collect(),
            });
        };
        self.offset += words[word].len();
        self.choices.push(choice);
        Ok(word)
    }
}
