//! Decides which text validates. The same text is never on both sides.
//!
//! Whole documents are held out if they can make up half to one and a half times the requested
//! fraction. If they cannot, as in a folder of one long text and two notes, the rest comes from the
//! ends of long documents: each is cut at the same fraction of its characters; the part before the
//! cut is for training, the part after it for validation. A single document is always cut this way,
//! as nanoGPT cuts it.
//!
//! Many documents are split at random, by a seeded hash of their content, if the result is close to
//! the fraction. Otherwise the longest are chosen one by one; if that misses the fraction too,
//! documents with many copies are added to the choice, and the random part may take more than the
//! fraction of the rest. At most half of the distinct text validates, however much repeated text
//! there is.
//!
//! Equal documents and near-duplicates ([`crate::near_duplicates`]) stay on one side. If nothing
//! else could validate, as in a folder of drafts of one text, near-duplicates are cut, all at the
//! same fraction.

mod bits;
mod candidates;
mod choice;
mod last;
mod repeated;
mod sides;

pub use candidates::Candidate;
pub use sides::{Side, Split};

use super::{duplicates::Duplicates, duplicates::NearDuplicateCounts, error::Error};
use crate::near_duplicates::Groups;
use crate::source::Dated;
use bit_vec::BitVec;
use candidates::{FEW, Longest};
use last::Order;
use repeated::Repeated;
use serde::{Deserialize, Serialize};
use sides::characters_before;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::Xxh3Default;

/// At most this many hashes are kept to count duplicates, 8 bytes each.
const MAX_HASHES: usize = 1 << 24;

/// The hash of a document's content, computed incrementally, that decides its side.
pub struct ContentHash {
    /// The state after hashing only the seed.
    start: Xxh3Default,
    hash: Xxh3Default,
}

impl ContentHash {
    pub fn new(seed: u64) -> Self {
        let mut start = Xxh3Default::new();
        start.update(&seed.to_le_bytes());
        Self { hash: start.clone(), start }
    }

    pub fn update(&mut self, text: &str) {
        self.hash.update(text.as_bytes());
    }

    /// Returns the hash of the document and starts the next one.
    pub fn finish(&mut self) -> u64 {
        std::mem::replace(&mut self.hash, self.start.clone()).digest()
    }
}

/// Which documents may validate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldOut {
    /// Any, by a seeded hash of their content.
    #[default]
    Any,
    /// The most recent, for text in chronological order such as mails and chats.
    Last,
}

/// Collects the documents during the first pass.
#[derive(Default, Serialize, Deserialize)]
pub struct SplitBuilder {
    val_fraction: f64,
    /// Whether one of several documents may be cut, so that its end validates.
    cuts: bool,
    documents: u64,
    bytes: u64,
    /// Bytes of the documents that the random split holds out.
    by_chance_bytes: u64,
    /// Hashes of the documents' content, in reading order; at most [`MAX_HASHES`].
    hashes: Vec<u64>,
    /// Documents that may be chosen one by one.
    longest: Longest,
    /// Documents that may have many copies.
    repeated: Repeated,
    /// Bytes of repeated documents beyond their first copy, as far as they are counted.
    #[serde(skip)]
    copied: u64,
    /// For each document, whether the random split holds it out.
    #[serde(with = "bits")]
    by_chance: BitVec,
    /// Groups of near-duplicates, which stay on one side.
    #[serde(skip)]
    near: Groups<Candidate>,
    /// The documents in order, if the last ones are to be held out.
    order: Option<Order>,
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
            order.dated.push((self.documents, when));
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

    /// Decides the split.
    ///
    /// # Errors
    /// When nothing is left for one of the sides.
    pub fn finish(mut self) -> Result<(Split, Duplicates), Error> {
        let documents = self.documents;
        if documents == 0 {
            return Err(Error::unusable("the text is empty; give a file with text"));
        }
        self.move_near_duplicates_to_first();
        let candidates = self.candidates();
        let split = match (&candidates[..], self.order.take()) {
            ([only], _) if documents == 1 => self.cut_in_two(only)?,
            (_, Some(order)) => order.hold_out(self.val_fraction, &self.hashes, &self.near)?,
            (_, None) if self.is_random_split_close() => self.random_split(),
            (candidates, None) => match self.choose(candidates)? {
                Some(split) => split,
                None => self.random_split(),
            },
        };
        let val = split.whole.count_ones();
        if val == 0 && split.cuts.is_empty() || val == documents {
            return Err(Error::OneSided { val, documents });
        }
        let near = NearDuplicateCounts::count(&self.near, &split);
        let duplicates = Duplicates::count(self.hashes, &split, near);
        Ok((split, duplicates))
    }

    /// In the random split, near-duplicates follow the first document of their group.
    fn move_near_duplicates_to_first(&mut self) {
        for group in &self.near.groups {
            let side = self.by_chance.get(group[0].number as usize).unwrap_or_default();
            for document in group {
                match (self.by_chance.get(document.number as usize), side) {
                    (Some(false), true) => self.by_chance_bytes += document.bytes,
                    (Some(true), false) => self.by_chance_bytes -= document.bytes,
                    _ => {}
                }
                self.by_chance.set(document.number as usize, side);
            }
        }
    }

    /// Whether the random split holds out a document with this hash.
    fn is_val_at_random(&self, hash: u64) -> bool {
        is_in_lowest_share(self.val_fraction, hash)
    }

    fn random_split(&mut self) -> Split {
        let percent = self.percent();
        let mut rule = format!("documents whose content has a seeded hash in the lowest {percent}% of its range");
        if !self.near.groups.is_empty() {
            rule += "; near-duplicates follow the first of their group";
        }
        Split { rule, whole: std::mem::take(&mut self.by_chance), cuts: BTreeMap::new() }
    }

    /// The documents chosen one by one when the random split does not come close: the longest,
    /// their near-duplicates, and groups of near-duplicates that are as long in total.
    fn candidates(&mut self) -> Vec<Candidate> {
        let longest = std::mem::take(&mut self.longest);
        let beaten = longest.beaten;
        let mut candidates: BTreeMap<u64, Candidate> =
            longest.in_order().into_iter().map(|candidate| (candidate.number, candidate)).collect();
        for group in &self.near.groups {
            let is_long = group.iter().map(|document| document.bytes).sum::<u64>() > beaten;
            if is_long || group.iter().any(|document| candidates.contains_key(&document.number)) {
                candidates.extend(as_one_group(group));
            }
        }
        candidates.into_values().collect()
    }

    fn percent(&self) -> f64 {
        percent(self.val_fraction)
    }

    /// Whether this many bytes are close to the requested fraction.
    fn is_close_to_share(&self, bytes: u64) -> bool {
        is_close_to_share(bytes as f64 / self.bytes as f64, self.val_fraction)
    }

    fn is_random_split_close(&self) -> bool {
        self.documents > FEW as u64 && self.is_close_to_share(self.by_chance_bytes)
    }

    fn cut_in_two(&self, only: &Candidate) -> Result<Split, Error> {
        if only.characters < 2 {
            return Err(Error::unusable("the text is one character long; give more"));
        }
        Ok(Split {
            rule: format!("the last {}% of the characters of the only document", self.percent()),
            whole: BitVec::default(),
            cuts: BTreeMap::from([(only.number, characters_before(only.characters, self.val_fraction))]),
        })
    }
}

/// Whether a fraction of the bytes is close to the wanted one: half to one and a half times it.
pub fn is_close_to_share(share: f64, wanted: f64) -> bool {
    (0.5 * wanted..=1.5 * wanted).contains(&share)
}

/// A fraction in percent, rounded to four decimals.
pub fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// Whether a hash is in the lowest part of its range, of relative size `share`.
fn is_in_lowest_share(share: f64, hash: u64) -> bool {
    (hash as f64) < share * 2f64.powi(64)
}

/// Near-duplicates, by document number, as candidates that share one hash and so stay together.
fn as_one_group(group: &[Candidate]) -> impl Iterator<Item = (u64, Candidate)> {
    let hash = group[0].hash;
    let resembles = group.iter().any(|document| document.hash != hash);
    group.iter().map(move |&document| (document.number, Candidate { hash, resembles, ..document }))
}

#[cfg(test)]
mod tests;
