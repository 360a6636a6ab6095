//! Collects, during the first pass, what the split is decided from.

use super::candidates::{Candidate, Longest};
use super::last::Order;
use super::random::is_in_lowest_share;
use super::repeated::Repeated;
use super::sides::is_close_to_share;
use crate::near_duplicates::Groups;
use crate::source::Dated;
use bit_vec::BitVec;
use serde::{Deserialize, Serialize};

/// At most this many hashes are kept to count duplicates, 8 bytes each.
const MAX_HASHES: usize = 1 << 24;

/// Collects the documents during the first pass.
#[derive(Default, Serialize, Deserialize)]
pub struct SplitBuilder {
    pub(super) val_fraction: f64,
    /// Whether one of several documents may be cut, so that its end validates.
    pub(super) cuts: bool,
    pub(super) documents: u64,
    pub(super) bytes: u64,
    /// Bytes of the documents that the random split holds out.
    pub(super) by_chance_bytes: u64,
    /// Hashes of the documents' content, in reading order; at most [`MAX_HASHES`].
    pub(super) hashes: Vec<u64>,
    /// Documents that may be chosen one by one.
    pub(super) longest: Longest,
    /// Documents that may have many copies.
    pub(super) repeated: Repeated,
    /// For each document, whether the random split holds it out.
    #[serde(with = "super::bits")]
    pub(super) by_chance: BitVec,
    /// Groups of near-duplicates, which stay on one side.
    #[serde(skip)]
    pub(super) near: Groups<Candidate>,
    /// The documents in order, if the last ones are to be held out.
    pub(super) order: Option<Order>,
}

impl SplitBuilder {
    /// Holds out `val_fraction` of the bytes: whole documents, and if these are not enough, the
    /// ends of long ones.
    pub fn new(val_fraction: f64) -> Self {
        Self { val_fraction, cuts: true, ..Self::default() }
    }

    /// As [`Self::new`], but with several documents none is cut.
    pub fn of_whole_documents(val_fraction: f64) -> Self {
        Self { cuts: false, ..Self::new(val_fraction) }
    }

    /// As [`Self::new`], but holds out the most recent text.
    pub fn of_the_last(val_fraction: f64) -> Self {
        Self { order: Some(Order::default()), ..Self::new(val_fraction) }
    }

    /// Sets the date of the next document pushed.
    pub fn dated(&mut self, when: Dated) {
        if let Some(order) = &mut self.order {
            order.date(when);
        }
    }

    /// Adds a document by the hash of its content.
    pub fn push(&mut self, hash: u64, bytes: u64, characters: u64) -> Candidate {
        let by_chance = self.is_val_at_random(hash);
        let document = Candidate { bytes, number: self.documents, hash, characters, resembles: false };
        self.longest.push(document);
        self.repeated.push(&document);
        self.documents += 1;
        self.bytes += bytes;
        self.by_chance_bytes += if by_chance { bytes } else { 0 };
        self.by_chance.push(by_chance);
        if self.hashes.len() < MAX_HASHES {
            self.hashes.push(hash);
        }
        if let Some(order) = &mut self.order {
            order.push(document);
        }
        document
    }

    /// Sets the groups of documents that must stay on one side.
    pub fn keep_together(&mut self, near: Groups<Candidate>) {
        self.near = near;
    }

    /// Sets the number of documents in each source, in reading order.
    pub fn in_sources(&mut self, documents: impl Iterator<Item = u64>) {
        if let Some(order) = &mut self.order {
            order.sources = documents.collect();
        }
    }

    /// Whether every document has a hash.
    pub(super) fn has_all_hashes(&self) -> bool {
        self.hashes.len() as u64 == self.documents
    }

    /// The hash of a document's own content.
    pub(super) fn own_hash(&self, document: &Candidate) -> u64 {
        self.hashes.get(document.number as usize).copied().unwrap_or(document.hash)
    }

    /// Whether the random split holds out a document with this hash.
    pub(super) fn is_val_at_random(&self, hash: u64) -> bool {
        is_in_lowest_share(self.val_fraction, hash)
    }

    /// Whether this many bytes are close to the requested fraction.
    pub(super) fn is_close_to_share(&self, bytes: u64) -> bool {
        is_close_to_share(bytes as f64 / self.bytes as f64, self.val_fraction)
    }
}
