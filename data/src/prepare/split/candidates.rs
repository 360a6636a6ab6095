//! The documents that may be chosen one by one: the longest.

use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BinaryHeap};

/// Up to this many documents are chosen one by one to make up the fraction. With more, a random
/// split is usually close enough; if a few are so long that it is not, this many of the longest are
/// chosen one by one.
pub const FEW: usize = 1000;

/// A document that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Candidate {
    pub bytes: u64,
    /// In reading order.
    pub number: u64,
    /// Hash of its content; near-duplicates kept together have the hash of the first.
    pub hash: u64,
    pub characters: u64,
    /// Whether another document is nearly the same.
    pub resembles: bool,
}

/// The longest documents.
#[derive(Default, Serialize, Deserialize)]
pub struct Longest {
    shortest_first: BinaryHeap<Reverse<Candidate>>,
    /// Bytes of the longest document that was dropped.
    pub beaten: u64,
}

impl Longest {
    pub fn push(&mut self, candidate: Candidate) {
        self.shortest_first.push(Reverse(candidate));
        if self.shortest_first.len() > FEW
            && let Some(Reverse(shortest)) = self.shortest_first.pop()
        {
            self.beaten = self.beaten.max(shortest.bytes);
        }
    }

    /// In reading order, and only documents longer than every dropped one: so all copies of a
    /// document are included or none.
    pub fn in_order(self) -> Vec<Candidate> {
        let all = self.shortest_first.into_iter().map(|Reverse(candidate)| candidate);
        let mut kept: Vec<Candidate> = all.filter(|candidate| candidate.bytes > self.beaten).collect();
        kept.sort_unstable_by_key(|candidate| candidate.number);
        kept
    }
}
