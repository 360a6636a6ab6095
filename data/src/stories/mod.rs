//! The built-in corpus: short English stories from a probabilistic grammar with state, so that a
//! first run needs no file.
//!
//! [`story`] generates story number `index` of the corpus with a given seed, [`parse`] recovers the
//! choices that made a text, and both compute the exact probability of the text. That gives
//! training two reference losses that no real text has: the floor, the lowest loss any model can
//! reach, and the loss of a predictor without memory. The stories are not a substitute for English:
//! a model of them knows some three hundred words and nothing else.
//!
//! # A story
//!
//! > One day Tom came to Paris with a ball. One fox came with one plum. Tom lost the ball in Paris
//! > and found a drum. The fox ate its plum and got one pear. Tom left Paris for Oslo. In the end
//! > Tom was in Oslo with the drum. The fox had its pear.
//!
//! Someone is introduced, in a place and with a thing; then an animal with something to eat; then
//! come 2 to 5 events that change who has what and where; then the outcome is told. Three rules
//! make the text a lesson in memory:
//! - known facts are told as they are: "Tom lost the" can only continue with the thing that Tom has
//!   now, the one mentioned last;
//! - the preceding word tells the kind of the next word and whether it is new: "a", "one", "to" and
//!   "for" introduce something new, "the", "The", "its", "in" and "left" something known, so that
//!   all there is to learn is when to look back, and for what;
//! - every event is always possible, so how a story continues never depends on its people, animals,
//!   things and places.
//!
//! # Why the probability is exact
//!
//! The grammar is one function, `tell`, over a `Chooser`: in generation the chooser draws; in
//! parsing it checks which of the possible phrases or words the text has. No word is a prefix of
//! another of its kind, and where one phrase is a prefix of another (the empty one), the longer
//! cannot be what follows the shorter. So a text has at most one sequence of choices, and P(text)
//! is the product of their probabilities. The last sentence ends the story with certainty.
//!
//! # The forgetful predictor
//!
//! It knows the grammar, every *phrase* of the story so far (which events happened, not to whom),
//! and all of the current sentence; it has forgotten every person, animal, thing, food and place of
//! earlier sentences. Its loss is exact, because:
//! 1. Phrases are chosen with probabilities that depend on earlier phrases only, so their cost is
//!    the same for every predictor.
//! 2. The grammar treats all words of a kind alike: a permutation of all names (or things, or
//!    places) maps stories to stories of the same probability and the same phrases. Take the
//!    permutations that fix the words of the current sentence: given what the predictor knows, the
//!    words not yet named in the sentence are equally likely.
//! 3. A word known to the story is never one that its sentence has already named, and nobody goes
//!    where they are. So such a word is one of the n - k others, each with probability 1 / (n - k),
//!    where n is the number of words of its kind and k how many of them the sentence has named. A
//!    thing found or a food got may be any of n, for every predictor.
//!
//! No other predictor with that knowledge does better, since these are the conditional
//! probabilities themselves.

#[cfg(test)]
mod expectation;
mod generate;
mod grammar;
mod lexicon;
mod parse;
#[cfg(test)]
mod tests;

use crate::tokenizer::TokenizerChoice;
use generate::Draw;
use grammar::{Teller, tell};
use parse::Follow;

pub use lexicon::Kind;
pub use parse::{ParseError, Parsed};

/// The tokenizer to train on the stories: every word, with the space before it, becomes one token.
pub const TOKENIZER: TokenizerChoice = TokenizerChoice::Bpe { vocab_size: 1152 };

/// A story and the cost of predicting it.
#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    /// The text, one line.
    pub text: String,
    /// -ln P(text), including the end.
    pub nats: f64,
    /// -ln of the forgetful predictor's probability of the text, including the end.
    pub forgetful_nats: f64,
}

/// Story number `index` of the corpus of `seed`: a pure function, the same on every machine.
///
/// Different numbers are independent draws, so the same text may occur twice.
pub fn story(seed: u64, index: u64) -> Story {
    let mut teller = Teller::new(Draw::new(seed, index));
    let Ok(()) = tell(&mut teller);
    Story { text: teller.chooser.text, nats: teller.nats, forgetful_nats: teller.forgetful_nats }
}

/// Finds the unique sequence of choices that makes `text` (one story, without `<|endoftext|>`).
///
/// # Errors
/// Why there is none.
pub fn parse(text: &str) -> Result<Parsed, ParseError> {
    let mut teller = Teller::new(Follow::new(text));
    tell(&mut teller)?;
    teller.chooser.finish()?;
    Ok(Parsed { choices: teller.chooser.choices, nats: teller.nats, forgetful_nats: teller.forgetful_nats })
}
