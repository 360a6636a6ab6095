//! The result of the split: the side of every document, and where documents are cut; and what is
//! close enough to the requested fraction.

use bit_vec::BitVec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A side of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    Train,
    Val,
}

/// A document is cut only if at least this many characters follow the cut: fewer validate nothing.
pub const SHORTEST_END: f64 = 64.0;

/// Characters before the cut that leaves `share` of them after it.
pub fn characters_before(characters: u64, share: f64) -> u64 {
    ((characters as f64 * (1.0 - share)) as u64).clamp(1, characters - 1)
}

/// Whether a fraction of the bytes is close to the wanted one: half to one and a half times it.
pub fn is_close_to_share(share: f64, wanted: f64) -> bool {
    (0.5 * wanted..=1.5 * wanted).contains(&share)
}

/// A fraction in percent, rounded to four decimals.
pub fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// Which text validates.
#[derive(Serialize, Deserialize)]
pub struct Split {
    /// The rule in words.
    pub rule: String,
    /// For each document, whether it validates as a whole.
    #[serde(with = "super::bits")]
    pub(super) whole: BitVec,
    /// The documents whose end validates, with the number of their characters for training.
    pub(super) cuts: BTreeMap<u64, u64>,
}

impl Split {
    /// The side of a document's beginning; `document` is its number in reading order.
    pub fn side(&self, document: u64) -> Side {
        if self.whole.get(document as usize) == Some(true) { Side::Val } else { Side::Train }
    }

    /// Number of a document's characters for training, if its end validates.
    pub fn cut(&self, document: u64) -> Option<u64> {
        self.cuts.get(&document).copied()
    }
}
