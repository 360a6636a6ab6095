//! What was decided: the side of every document, and where one is cut.

use bit_vec::BitVec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A side of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    Train,
    Val,
}

/// A document is long enough to be cut where so many characters are behind the cut: less validates
/// nothing.
pub const SHORTEST_END: f64 = 64.0;

/// How many of a document's characters are before the cut that leaves a `share` of them behind it.
pub fn characters_before(characters: u64, share: f64) -> u64 {
    ((characters as f64 * (1.0 - share)) as u64).clamp(1, characters - 1)
}

/// Which text validates.
#[derive(Serialize, Deserialize)]
pub struct Split {
    /// The rule in words: what validates.
    pub rule: String,
    /// Set for the documents that validate as a whole.
    #[serde(with = "super::bits")]
    pub(super) whole: BitVec,
    /// The documents of which the end validates, and how many characters of each teach.
    pub(super) cuts: BTreeMap<u64, u64>,
}

impl Split {
    /// The side on which a document (its number in reading order) begins.
    pub fn side(&self, document: u64) -> Side {
        if self.whole.get(document as usize) == Some(true) { Side::Val } else { Side::Train }
    }

    /// How many characters of a document teach, where its end validates.
    pub fn cut(&self, document: u64) -> Option<u64> {
        self.cuts.get(&document).copied()
    }
}
