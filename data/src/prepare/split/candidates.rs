//! The documents that may be chosen one by one: the longest, and their near-duplicates.

use crate::near_duplicates::Groups;
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap, collections::BTreeSet, collections::BinaryHeap};

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
    beaten: u64,
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

    /// In reading order: documents longer than every dropped one, so that all copies of a document
    /// are included or none; their near-duplicates; and groups of near-duplicates that are as long
    /// in total.
    pub fn candidates(self, near: &Groups<Candidate>) -> Vec<Candidate> {
        let all = self.shortest_first.into_iter().map(|Reverse(candidate)| candidate);
        let longest: Vec<Candidate> = all.filter(|candidate| candidate.bytes > self.beaten).collect();
        let numbers: BTreeSet<u64> = longest.iter().map(|candidate| candidate.number).collect();
        let is_long = |group: &[Candidate]| group.iter().map(|document| document.bytes).sum::<u64>() > self.beaten;
        let has_long = |group: &[Candidate]| group.iter().any(|document| numbers.contains(&document.number));
        with_near_duplicates(longest, near.groups.iter().filter(|group| is_long(group) || has_long(group)))
    }
}

/// The candidates and these groups of near-duplicates, in reading order. Each group becomes
/// candidates that share one hash and so stay together.
pub fn with_near_duplicates<'a>(
    candidates: Vec<Candidate>,
    groups: impl Iterator<Item = &'a Vec<Candidate>>,
) -> Vec<Candidate> {
    let mut by_number: BTreeMap<u64, Candidate> =
        candidates.into_iter().map(|candidate| (candidate.number, candidate)).collect();
    for group in groups {
        let hash = group[0].hash;
        let resembles = group.iter().any(|document| document.hash != hash);
        by_number.extend(group.iter().map(|&document| (document.number, Candidate { hash, resembles, ..document })));
    }
    by_number.into_values().collect()
}
