//! The documents that may be chosen one by one: the longest.

use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BinaryHeap};

/// Up to so many documents are chosen so that their bytes make the wanted share; of more, chance
/// does well enough, unless some are so long that it does not: then so many of the longest are
/// chosen like few.
pub const FEW: usize = 1000;

/// A document that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Candidate {
    pub bytes: u64,
    /// In the order in which documents were read.
    pub number: u64,
    /// Of its content; near-duplicates that are kept together have that of the first.
    pub hash: u64,
    pub characters: u64,
    /// Whether there is another document that is nearly the same.
    pub resembles: bool,
}

/// The longest documents.
#[derive(Default, Serialize, Deserialize)]
pub struct Longest {
    shortest_first: BinaryHeap<Reverse<Candidate>>,
    /// Bytes of the longest that found no place.
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

    /// In the order in which they were read, and only those longer than any that found no place: so
    /// all copies of a document are among them or none.
    pub fn in_order(self) -> Vec<Candidate> {
        let all = self.shortest_first.into_iter().map(|Reverse(candidate)| candidate);
        let mut kept: Vec<Candidate> = all.filter(|candidate| candidate.bytes > self.beaten).collect();
        kept.sort_unstable_by_key(|candidate| candidate.number);
        kept
    }
}
