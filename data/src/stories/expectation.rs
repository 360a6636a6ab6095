//! The source's exact entropy, by a chooser that enumerates every path.
//!
//! The number of words to choose from depends on the phrases chosen before, never on the words (the
//! words of a kind are interchangeable, see the [module above](super)). So a story's cost depends
//! on its phrases alone, and the mean over all stories is a sum over the few thousand sequences of
//! phrases, taking the first word that fits in each place.

use std::convert::Infallible;

use super::grammar::{Chooser, Teller, Words, tell};
use super::lexicon::Kind;

/// Means and counts over all stories of the grammar.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expectation {
    /// The entropy of the source: the mean of -ln P over stories.
    pub nats: f64,
    /// The mean loss of the forgetful predictor.
    pub forgetful_nats: f64,
    /// Number of different stories.
    pub stories: f64,
}

/// Sums over the whole grammar; this generates some thousands of stories, so call it once.
pub fn expectation() -> Expectation {
    let mut total = Expectation::default();
    let mut path = Vec::new();
    loop {
        let mut teller = Teller::new(EveryPath { path, depth: 0, probability: 1.0, stories: 1.0 });
        let Ok(()) = tell(&mut teller);
        let EveryPath { path: walked, probability, stories, .. } = teller.chooser;
        total.nats += probability * teller.nats;
        total.forgetful_nats += probability * teller.forgetful_nats;
        total.stories += stories;
        path = walked;
        // The next path in lexicographic order: the last phrase that has a successor takes it.
        while path.pop_if(|(chosen, options)| *chosen + 1 == *options).is_some() {}
        match path.last_mut() {
            Some((chosen, _)) => *chosen += 1,
            None => return total,
        }
    }
}

/// Follows a path of phrases, then takes the first phrase each time; always takes the first word.
struct EveryPath {
    /// The phrase chosen at each choice, and the number of options there.
    path: Vec<(usize, usize)>,
    depth: usize,
    probability: f64,
    /// Number of stories that share this path.
    stories: f64,
}

impl Chooser for EveryPath {
    type Error = Infallible;

    fn say(&mut self, _: &'static str) -> Result<(), Infallible> {
        Ok(())
    }

    fn phrase(&mut self, phrases: &[&'static str]) -> Result<usize, Infallible> {
        if self.depth == self.path.len() {
            self.path.push((0, phrases.len()));
        }
        let (chosen, options) = self.path[self.depth];
        self.depth += 1;
        self.probability /= options as f64;
        Ok(chosen)
    }

    fn word(&mut self, _: Kind, allowed: Words) -> Result<usize, Infallible> {
        self.stories *= allowed.len() as f64;
        Ok(allowed.iter().next().unwrap_or_default())
    }
}
