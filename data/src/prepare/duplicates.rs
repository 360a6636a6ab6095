//! Documents that occur more than once, and on which sides of the split.

use super::split::{Candidate, Side, Split};
use crate::near_duplicates::Groups;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Counts of duplicate documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicates {
    /// Documents compared: all, or the first 16,777,216.
    pub examined: u64,
    /// Of these, documents equal to an earlier one.
    pub exact: u64,
    /// Distinct documents with copies on both sides.
    pub on_both_sides: u64,
    /// Counts of near-duplicates.
    pub near: NearDuplicateCounts,
}

/// Counts of near-duplicates ([`crate::near_duplicates`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearDuplicateCounts {
    /// One in this many documents was compared with the others; 0 if none was.
    pub one_in: u64,
    /// Groups of documents that are nearly the same.
    pub groups: u64,
    /// Distinct documents in them, without the first of each group.
    pub documents: u64,
    /// Groups with text on both sides: there was no other text to validate on.
    pub on_both_sides: u64,
}

impl Duplicates {
    pub(super) fn count(mut hashes: Vec<u64>, split: &Split, near: NearDuplicateCounts) -> Self {
        let examined = hashes.len() as u64;
        // The lowest bit of each hash is replaced by the side, so that one sorted list answers both
        // questions.
        for (document, hash) in hashes.iter_mut().enumerate() {
            *hash = *hash & !1 | u64::from(split.side(document as u64) == Side::Val);
        }
        hashes.sort_unstable();
        let groups = || hashes.chunk_by(|a, b| a & !1 == b & !1);
        let on_both_sides = groups().filter(|group| group.first() != group.last()).count() as u64;
        Self { examined, exact: examined - groups().count() as u64, on_both_sides, near }
    }
}

impl NearDuplicateCounts {
    pub(super) fn count(near: &Groups<Candidate>, split: &Split) -> Self {
        let mut counts = Self { one_in: near.one_in, ..Self::default() };
        for group in &near.groups {
            let different = group.iter().map(|document| document.hash).collect::<BTreeSet<_>>().len() as u64;
            if different > 1 {
                counts.groups += 1;
                counts.documents += different - 1;
                let side = |document: &Candidate| (split.side(document.number), split.cut(document.number).is_some());
                let sides: Vec<_> = group.iter().map(side).collect();
                let is_parted = sides.iter().any(|&(side, is_cut)| is_cut || side != sides[0].0);
                counts.on_both_sides += u64::from(is_parted);
            }
        }
        counts
    }
}
