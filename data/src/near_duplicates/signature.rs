//! A document's MinHash signature: the fraction of equal bins estimates the similarity of two
//! documents.

use super::words::shingles;
use crate::random::mix;
use serde::{Deserialize, Serialize};

/// Bins of a signature.
pub const BINS: usize = 128;

/// Documents are compared by shingles of this many words.
pub const SHINGLE_WORDS: usize = 5;

/// A document with fewer shingles is too short to judge: many consist of a greeting and a name.
const MIN_SHINGLES: u64 = 16;

/// One-permutation MinHash ([Li, Owen and Zhang 2012](https://arxiv.org/abs/1208.1259)): a
/// shingle's hash selects a bin, and each bin keeps its least hash. An empty bin copies another
/// one, drawn by its own number ([Shrivastava 2017](https://arxiv.org/abs/1703.04664)). The
/// fraction of bins in which two documents agree estimates their Jaccard similarity: shingles in
/// both, divided by shingles in either.
///
/// Of each least hash 16 bits are kept, which agree by chance once in 65,536.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<u16>", try_from = "Vec<u16>")]
pub struct Signature(pub [u16; BINS]);

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
    /// The signature of a text; `None` if it is too short.
    pub fn new(text: &str) -> Option<Self> {
        let mut minima = [u64::MAX; BINS];
        let mut shingle_count = 0;
        shingles::<SHINGLE_WORDS>(text, &mut |shingle| {
            let hash = mix(shingle);
            let bin = &mut minima[(hash >> 57) as usize];
            *bin = (*bin).min(hash);
            shingle_count += 1;
        });
        let is_hash = |hash: &u64| *hash != u64::MAX;
        let borrowed =
            |bin: usize| (0u64..).map(|draw| minima[mix((bin as u64) << 32 | draw) as usize % BINS]).find(is_hash);
        let kept = |bin: usize| {
            let hash = Some(minima[bin]).filter(is_hash).or_else(|| borrowed(bin));
            hash.map_or(0, |hash| mix(hash) as u16)
        };
        (shingle_count >= MIN_SHINGLES).then(|| Self(std::array::from_fn(kept)))
    }

    /// The estimated Jaccard similarity of two documents.
    pub fn similarity(&self, other: &Self) -> f64 {
        let agree = self.0.iter().zip(&other.0).filter(|(one, two)| one == two).count();
        agree as f64 / BINS as f64
    }
}
