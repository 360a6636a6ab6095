//! The built-in corpus: short stories from a probabilistic grammar with state.

mod generate;
mod grammar;
mod lexicon;
mod parse;

use generate::Draw;
use grammar::{Teller, tell};
use parse::Follow;

pub use lexicon::Kind;
pub use parse::ParseError;

/// The tokenizer to train on the stories: every word with its leading space becomes one token.
pub const TOKENIZER: &str = "bpe:1024";

/// A story and what it costs to predict it.
#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    /// The text.
    pub text: String,
    /// -ln P(text), its end included.
    pub nats: f64,
    /// -ln of the probability that the forgetful predictor gives the text.
    pub forgetful_nats: f64,
}

/// Story number `index` of the corpus named by `seed`: always the same for the same pair.
pub fn story(seed: u64, index: u64) -> Story {
    let mut teller = Teller::new(Draw::new(seed, index));
    let Ok(()) = tell(&mut teller);
    Story { text: teller.chooser.text, nats: teller.nats, forgetful_nats: teller.forgetful_nats }
}

/// What [`parse`] recovers from a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The choices in order, each as its number among those that were possible there.
    pub choices: Vec<usize>,
    /// -ln P(text), its end included.
    pub nats: f64,
    /// -ln of the probability that the forgetful predictor gives the text.
    pub forgetful_nats: f64,
}

/// Finds the one sequence of choices that makes `text`, or says why there is none.
pub fn parse(text: &str) -> Result<Parsed, ParseError> {
    let mut teller = Teller::new(Follow::new(text));
    tell(&mut teller)?;
    teller.chooser.finish()?;
    Ok(Parsed { choices: teller.chooser.choices, nats: teller.nats, forgetful_nats: teller.forgetful_nats })
}
