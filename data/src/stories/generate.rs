//! A chooser that draws at random.

use std::convert::Infallible;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{grammar::Chooser, grammar::Words, lexicon::Kind};

/// Writes a story while drawing its choices from a seeded generator.
pub(super) struct Draw {
    pub text: String,
    #[cfg(test)]
    pub choices: Vec<usize>,
    rng: ChaCha8Rng,
}

impl Draw {
    /// The draws of story number `index` of the corpus of `seed`.
    pub fn new(seed: u64, index: u64) -> Draw {
        // Every pair has its own ChaCha key: no two stories share a stream of random numbers.
        let mut key = *b"................ember's stories.";
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&index.to_le_bytes());
        Draw {
            text: String::with_capacity(512),
            #[cfg(test)]
            choices: Vec::new(),
            rng: ChaCha8Rng::from_seed(key),
        }
    }

    /// A uniform number below `n`, the high half of a product: the bias is below n / 2^64, and
    /// unlike a library's range function it cannot change with a library version.
    fn below(&mut self, n: usize) -> usize {
        let chosen = ((u128::from(self.rng.next_u64()) * n as u128) >> 64) as usize;
        #[cfg(test)]
        self.choices.push(chosen);
        chosen
    }
}

impl Chooser for Draw {
    type Error = Infallible;

    fn say(&mut self, text: &'static str) -> Result<(), Infallible> {
        self.text.push_str(text);
        Ok(())
    }

    fn phrase(&mut self, phrases: &[&'static str]) -> Result<usize, Infallible> {
        let chosen = self.below(phrases.len());
        self.text.push_str(phrases[chosen]);
        Ok(chosen)
    }

    fn word(&mut self, kind: Kind, allowed: Words) -> Result<usize, Infallible> {
        let n = self.below(allowed.len());
        // `n` is below the set's size, so there is an n-th word.
        let word = allowed.iter().nth(n).unwrap_or_default();
        self.text.push_str(kind.words()[word]);
        Ok(word)
    }
}
