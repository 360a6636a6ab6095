//! A document's signature: so alike are two documents, so many of its places agree.

use super::words::shingles;
use crate::random::mix;
use serde::{Deserialize, Serialize};

/// Places of a signature.
pub const PLACES: usize = 128;

/// Runs of so many words are what documents are compared by.
pub const WORDS: usize = 5;

/// A document with fewer runs is too short to be judged: of a greeting and a name, many are alike.
const FEWEST_RUNS: u64 = 16;

/// MinHash in one permutation ([Li, Owen and Zhang 2012](https://arxiv.org/abs/1208.1259)): a run's
/// hash says to which place it belongs, and each place keeps the least of its hashes. A place that
/// got none takes that of another, drawn by its own number ([Shrivastava
/// 2017](https://arxiv.org/abs/1703.04664)). Of two documents, the share of places that agree
/// estimates their Jaccard similarity: the runs that both have, of those that either has.
///
/// Of each least hash 16 bits are kept, which agree by chance once in 65,536.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<u16>", try_from = "Vec<u16>")]
pub struct Signature(pub [u16; PLACES]);

impl From<Signature> for Vec<u16> {
    fn from(signature: Signature) -> Self {
        signature.0.to_vec()
    }
}

impl TryFrom<Vec<u16>> for Signature {
    type Error = &'static str;

    fn try_from(places: Vec<u16>) -> Result<Self, Self::Error> {
        places.try_into().map(Self).map_err(|_| "a signature has 128 places")
    }
}

impl Signature {
    /// Of a text; `None` where it is too short.
    pub fn new(text: &str) -> Option<Self> {
        let mut least = [u64::MAX; PLACES];
        let mut runs = 0;
        shingles::<WORDS>(text, &mut |run| {
            let hash = mix(run);
            let place = &mut least[(hash >> 57) as usize];
            *place = (*place).min(hash);
            runs += 1;
        });
        let is_hash = |hash: &u64| *hash != u64::MAX;
        let another =
            |place: usize| (0u64..).map(|draw| least[mix((place as u64) << 32 | draw) as usize % PLACES]).find(is_hash);
        let kept = |place: usize| {
            let hash = Some(least[place]).filter(is_hash).or_else(|| another(place));
            hash.map_or(0, |hash| mix(hash) as u16)
        };
        (runs >= FEWEST_RUNS).then(|| Self(std::array::from_fn(kept)))
    }

    /// The estimated Jaccard similarity of two documents.
    pub fn similarity(&self, other: &Self) -> f64 {
        let agree = self.0.iter().zip(&other.0).filter(|(one, two)| one == two).count();
        agree as f64 / PLACES as f64
    }
}
