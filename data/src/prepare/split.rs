//! Which text validates: never the same text on both sides.
//!
//! Whole documents do, where they make up about the share that was asked for, from a half of it to
//! one and a half. Where they cannot, as in a folder of one long text and two notes, the rest comes
//! from the ends of long documents: each is cut at the same share of its characters, what is before
//! the cut teaches and what is behind it validates. A single document is cut so from the start, as
//! nanoGPT cuts it.
//!
//! Many documents are split by chance, by a seeded hash of their content, where that comes to about
//! the share; else the longest are chosen one by one, and where that misses the share as well, those
//! of which there are many copies; chance takes more of the others where these are too few. At most a
//! half of the different text validates, whatever is said again and again beside it.
//!
//! Documents that are equal, or nearly so ([`crate::near_duplicates`]), stay on one side. Only where
//! nothing else could validate, as in a folder of drafts of one text, near-duplicates are cut, all
//! at the same share.

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

/// Documents whose hashes are kept, to count duplicates: 8 bytes each.
const MOST_HASHES: usize = 1 << 24;

/// The hash of a document's content that decides its side, taken piece by piece.
pub struct ContentHash {
    /// With the seed in it, and nothing else.
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

    /// The hash of the document so far; the next document begins.
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
    /// What was written last, for text in the order of time, such as mails and chats.
    Last,
}

/// Collects documents as the text is read for the first time.
#[derive(Default, Serialize, Deserialize)]
pub struct SplitBuilder {
    val_fraction: f64,
    /// Whether one of several documents may be cut, so that its end validates.
    cuts: bool,
    documents: u64,
    bytes: u64,
    /// Of the documents that chance has validate.
    by_chance_bytes: u64,
    /// Of the documents' content, in the order in which they were read; at most [`MOST_HASHES`].
    hashes: Vec<u64>,
    /// Documents that may be chosen one by one.
    longest: Longest,
    /// Documents of which there may be many copies.
    repeated: Repeated,
    /// Bytes of what was said before, word for word, as far as it is counted.
    #[serde(skip)]
    copied: u64,
    /// Set for the documents that chance has validate.
    #[serde(with = "bits")]
    by_chance: BitVec,
    /// Documents to be kept on one side.
    #[serde(skip)]
    near: Groups<Candidate>,
    /// What is needed to hold out the last documents, where that is asked for.
    order: Option<Order>,
}

impl SplitBuilder {
    /// This share of the bytes is to validate: whole documents, and where these cannot make it up,
    /// the ends of long ones.
    pub fn new(val_fraction: f64) -> Self {
        Self { val_fraction, cuts: true, ..Self::default() }
    }

    /// As [`Self::new`], but of several documents none is cut.
    pub fn of_whole_documents(val_fraction: f64) -> Self {
        Self { cuts: false, ..Self::new(val_fraction) }
    }

    /// As [`Self::new`], but what was written last validates.
    pub fn of_the_last(val_fraction: f64) -> Self {
        Self { order: Some(Order::default()), ..Self::new(val_fraction) }
    }

    /// When the document that is pushed next was written.
    pub fn dated(&mut self, when: Dated) {
        if let Some(order) = &mut self.order {
            order.dated.push((self.documents, when));
        }
    }

    /// Adds a document by the hash of its content.
    pub fn push(&mut self, hash: u64, bytes: u64, characters: u64) -> Candidate {
        let by_chance = self.is_by_chance(hash);
        let document = Candidate { bytes, number: self.documents, hash, characters, resembles: false };
        self.longest.push(document);
        self.repeated.push(&document);
        self.documents += 1;
        self.bytes += bytes;
        self.by_chance_bytes += if by_chance { bytes } else { 0 };
        self.by_chance.push(by_chance);
        if self.hashes.len() < MOST_HASHES {
            self.hashes.push(hash);
        }
        if let Some(order) = &mut self.order {
            order.push(document);
        }
        document
    }

    /// Documents that are to stay on one side.
    pub fn keep_together(&mut self, near: Groups<Candidate>) {
        self.near = near;
    }

    /// How many documents each source held, in the order in which they were read.
    pub fn in_sources(&mut self, documents: impl Iterator<Item = u64>) {
        if let Some(order) = &mut self.order {
            order.sources = documents.collect();
        }
    }

    /// Decides.
    ///
    /// # Errors
    /// When nothing is left for one of the sides.
    pub fn finish(mut self) -> Result<(Split, Duplicates), Error> {
        let documents = self.documents;
        if documents == 0 {
            return Err(Error::unusable("the text is empty; give some"));
        }
        self.follow_the_first();
        let candidates = self.candidates();
        let split = match (&candidates[..], self.order.take()) {
            ([only], _) if documents == 1 => self.cut_in_two(only)?,
            (_, Some(order)) => order.hold_out(self.val_fraction, &self.hashes, &self.near)?,
            (_, None) if self.chance_does_well() => self.split_by_chance(),
            (candidates, None) => match self.choose(candidates)? {
                Some(split) => split,
                None => self.split_by_chance(),
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

    /// Where chance decides, near-duplicates are where it has put the first of them.
    fn follow_the_first(&mut self) {
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

    /// Whether chance has a document with this hash validate.
    fn is_by_chance(&self, hash: u64) -> bool {
        is_in_the_lowest(self.val_fraction, hash)
    }

    fn split_by_chance(&mut self) -> Split {
        let percent = self.percent();
        let mut rule = format!("documents whose content has a seeded hash in the lowest {percent}% of its range");
        if !self.near.groups.is_empty() {
            rule += "; near-duplicates with the first of them";
        }
        Split { rule, whole: std::mem::take(&mut self.by_chance), cuts: BTreeMap::new() }
    }

    /// The documents that are chosen one by one where chance does not do well: the longest, their
    /// near-duplicates, and groups of near-duplicates that are as long together.
    fn candidates(&mut self) -> Vec<Candidate> {
        let longest = std::mem::take(&mut self.longest);
        let beaten = longest.beaten;
        let mut candidates: BTreeMap<u64, Candidate> =
            longest.in_order().into_iter().map(|candidate| (candidate.number, candidate)).collect();
        for group in &self.near.groups {
            let is_long = group.iter().map(|document| document.bytes).sum::<u64>() > beaten;
            if is_long || group.iter().any(|document| candidates.contains_key(&document.number)) {
                candidates.extend(together(group));
            }
        }
        candidates.into_values().collect()
    }

    fn percent(&self) -> f64 {
        percent(self.val_fraction)
    }

    /// Whether so many bytes are about the share that is to validate.
    fn is_about_the_share(&self, bytes: u64) -> bool {
        is_about_the_share(bytes as f64 / self.bytes as f64, self.val_fraction)
    }

    fn chance_does_well(&self) -> bool {
        self.documents > FEW as u64 && self.is_about_the_share(self.by_chance_bytes)
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

/// Whether a share of the bytes is about the one that is to validate: from a half of it to one and a
/// half.
pub fn is_about_the_share(share: f64, wanted: f64) -> bool {
    (0.5 * wanted..=1.5 * wanted).contains(&share)
}

/// A share in percent, to four digits behind the point.
pub fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// Whether a hash is in this lowest share of its range.
fn is_in_the_lowest(share: f64, hash: u64) -> bool {
    (hash as f64) < share * 2f64.powi(64)
}

/// Near-duplicates as candidates that stay together, by their numbers.
fn together(group: &[Candidate]) -> impl Iterator<Item = (u64, Candidate)> {
    let hash = group[0].hash;
    let resembles = group.iter().any(|document| document.hash != hash);
    group.iter().map(move |&document| (document.number, Candidate { hash, resembles, ..document }))
}

#[cfg(test)]
mod tests;
