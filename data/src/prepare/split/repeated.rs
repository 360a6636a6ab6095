//! Documents of which there are so many copies that chance must not put them all on one side.

use super::candidates::Candidate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// So many different documents are counted for certain, and at most twice as many.
const MOST_COUNTED: usize = 1 << 13;

/// The documents that make up the most of the text with all their copies.
///
/// As Misra and Gries count ("Finding repeated elements", 1982): when there are too many, all counts
/// fall by one number until half of them are gone. What is a part in [`MOST_COUNTED`] of the text or
/// more is always among the rest.
#[derive(Default, Serialize, Deserialize)]
pub struct Repeated {
    counted: BTreeMap<u64, Counted>,
    /// Whether some documents are no longer among them.
    has_forgotten: bool,
}

/// A document, by its hash.
#[derive(Serialize, Deserialize)]
struct Counted {
    /// Of one copy.
    bytes: u64,
    /// Of all, less by what counts have fallen.
    count: u64,
}

/// Equal documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// How many there are.
    pub documents: u64,
    /// Of all of them.
    pub bytes: u64,
}

impl Copies {
    /// Bytes of a single one.
    pub fn bytes_of_one(&self) -> u64 {
        self.bytes / self.documents
    }
}

impl Repeated {
    pub fn push(&mut self, document: &Candidate) {
        if document.bytes == 0 {
            return;
        }
        let counted = self.counted.entry(document.hash).or_insert(Counted { bytes: document.bytes, count: 0 });
        counted.count += document.bytes;
        if self.counted.len() > 2 * MOST_COUNTED {
            self.forget_the_least();
        }
    }

    fn forget_the_least(&mut self) {
        self.has_forgotten = true;
        let mut counts: Vec<u64> = self.counted.values().map(|counted| counted.count).collect();
        let (_, &mut fall, _) = counts.select_nth_unstable_by(MOST_COUNTED, |one, other| other.cmp(one));
        self.counted.retain(|_, counted| {
            counted.count = counted.count.saturating_sub(fall);
            counted.count > 0
        });
    }

    /// All copies of each, by the hash of their content; `hashes` are those of all documents. Where
    /// some were forgotten, documents that occur once are left out: which of those are still counted
    /// depends on the order of reading, and they would validate for having been read last.
    pub fn copies(self, hashes: &[u64]) -> BTreeMap<u64, Copies> {
        let mut copies: BTreeMap<u64, Copies> = BTreeMap::new();
        for hash in hashes {
            if let Some(counted) = self.counted.get(hash) {
                let copies = copies.entry(*hash).or_insert(Copies { documents: 0, bytes: 0 });
                copies.documents += 1;
                copies.bytes += counted.bytes;
            }
        }
        copies.retain(|_, copies| copies.documents > 1 || !self.has_forgotten);
        copies
    }
}
