//! Documents with so many copies that a random split must not put them all on one side.

use super::candidates::Candidate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// At least this many distinct documents are counted, and at most twice as many.
const MAX_COUNTED: usize = 1 << 13;

/// The documents that, with all their copies, make up most of the text.
///
/// The algorithm of Misra and Gries ("Finding repeated elements", 1982): when there are too many
/// counts, all are lowered by the same amount so that half of them drop out. Whatever makes up one
/// part in [`MAX_COUNTED`] of the text or more always stays.
#[derive(Default, Serialize, Deserialize)]
pub struct Repeated {
    counted: BTreeMap<u64, Counted>,
    /// Whether some documents dropped out.
    has_forgotten: bool,
}

/// A document, by its hash.
#[derive(Serialize, Deserialize)]
struct Counted {
    /// Bytes of one copy.
    bytes: u64,
    /// Bytes of all copies, minus the amounts by which counts were lowered.
    count: u64,
}

/// Equal documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Number of copies.
    pub documents: u64,
    /// Bytes of all copies.
    pub bytes: u64,
}

impl Copies {
    /// Bytes of one copy.
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
        if self.counted.len() > 2 * MAX_COUNTED {
            self.forget_the_least();
        }
    }

    fn forget_the_least(&mut self) {
        self.has_forgotten = true;
        let mut counts: Vec<u64> = self.counted.values().map(|counted| counted.count).collect();
        let (_, &mut fall, _) = counts.select_nth_unstable_by(MAX_COUNTED, |one, other| other.cmp(one));
        self.counted.retain(|_, counted| {
            counted.count = counted.count.saturating_sub(fall);
            counted.count > 0
        });
    }

    /// All copies of each counted document, by hash; `hashes` are those of all documents. If some
    /// dropped out, documents that occur once are excluded: which of them are still counted depends
    /// on the reading order, so they would validate for having been read last.
    pub fn copies(&self, hashes: &[u64]) -> BTreeMap<u64, Copies> {
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
