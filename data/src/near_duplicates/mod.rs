//! Documents that are nearly the same: two versions of a letter, a mail and the one that quotes it
//! whole, a page with another date.
//!
//! Two documents are near-duplicates where, of all runs of five words that stand in either, about
//! [`ALIKE`] or more stand in both. Each document has a [`Signature`]; those that agree in all
//! places of one of 32 bands are compared (locality-sensitive hashing: Leskovec, Rajaraman and
//! Ullman, "Mining of Massive Datasets", chapter 3), and near-duplicates of one document are near-
//! duplicates of each other.
//!
//! Memory is bounded: of a long document the first mebibyte is looked at, and of more than half a
//! million documents a sample, into which near-duplicates come together.

mod signature;
mod words;

pub use signature::Signature;
pub use words::shingles;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use signature::PLACES;
use std::{ops::Range, panic::resume_unwind, thread, thread::JoinHandle};
use xxhash_rust::xxh3::xxh3_64;

/// Documents are near-duplicates from this Jaccard similarity on. The estimate is off by 0.04 (one
/// standard deviation).
pub const ALIKE: f64 = 0.7;

/// So much of a document is looked at: two long texts that share a beginning of this length are
/// versions of one.
const LOOKED_AT: usize = 1 << 20;

/// So many documents are kept to be compared, in 150 MB.
const MOST_KEPT: usize = 1 << 19;

/// So much text waits for its signatures.
const COMPUTED_AT_ONCE: usize = 8 << 20;

/// Places of a signature that must agree for two documents to be compared. Of those with a
/// similarity of 0.7 all but one in 5,000 pairs meet in one of the bands, of 0.5 most, of 0.2 one
/// in 20.
const BAND: usize = 4;

/// Of documents that agree in a band each is compared with so many: where more are unlike each
/// other, the band says nothing.
const MOST_LEADERS: usize = 16;

/// Finds near-duplicates among documents that are handed in piece by piece; `T` is what the caller
/// calls a document.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct NearDuplicates<T> {
    /// The documents that wait for their signatures, and the open one behind them.
    waiting: Waiting<T>,
    /// Those whose signatures are computed while others are handed in.
    #[serde(skip)]
    computed: Option<JoinHandle<Computed<T>>>,
    /// What was computed last, to be used again without its content.
    #[serde(skip)]
    spare: Waiting<T>,
    kept: Vec<(T, Signature)>,
    most_kept: usize,
    /// One in 2^level documents is kept.
    level: u32,
}

/// Documents one behind the other.
#[derive(Serialize, Deserialize)]
struct Waiting<T> {
    text: String,
    /// Where each ends; what is behind the last is open.
    ends: Vec<(T, usize)>,
}

/// Signatures, and the documents that they are of.
type Computed<T> = (Vec<(T, Signature)>, Waiting<T>);

/// What was found.
pub struct Groups<T> {
    /// Documents that are near-duplicates of each other, in the order of their first.
    pub groups: Vec<Vec<T>>,
    /// One in so many documents was looked at; 0 where none was.
    pub one_in: u64,
}

impl<T> Default for Groups<T> {
    /// Nothing was looked at.
    fn default() -> Self {
        Self { groups: Vec::new(), one_in: 0 }
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { text: String::new(), ends: Vec::new() }
    }
}

impl<T> Waiting<T> {
    /// Where the open document begins.
    fn open(&self) -> usize {
        self.ends.last().map_or(0, |&(_, end)| end)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }
}

impl<T: Copy> Waiting<T> {
    /// The signatures of those that have one.
    fn signatures(&self) -> Vec<(T, Signature)> {
        let (mut signatures, mut start) = (Vec::new(), 0);
        for &(name, end) in &self.ends {
            let signature = Signature::new(&self.text[start..end]);
            signatures.extend(signature.map(|signature| (name, signature)));
            start = end;
        }
        signatures
    }
}

impl<T> Default for NearDuplicates<T> {
    fn default() -> Self {
        let (waiting, spare) = (Waiting::default(), Waiting::default());
        Self { waiting, computed: None, spare, kept: Vec::new(), most_kept: MOST_KEPT, level: 0 }
    }
}

impl<T: Copy + Send + Sync + 'static> NearDuplicates<T> {
    /// Adds text to the open document.
    pub fn add(&mut self, text: &str) {
        let waiting = &mut self.waiting;
        let room = LOOKED_AT - (waiting.text.len() - waiting.open());
        waiting.text.push_str(&text[..text.floor_char_boundary(room)]);
    }

    /// Ends the open document, which is called `name`.
    pub fn end_document(&mut self, name: T) {
        let waiting = &mut self.waiting;
        waiting.ends.push((name, waiting.text.len()));
        if waiting.text.len() >= COMPUTED_AT_ONCE || waiting.ends.len() >= 1 << 16 {
            self.settle();
            let full = std::mem::replace(&mut self.waiting, std::mem::take(&mut self.spare));
            // On a thread beside the one that reads, which takes about as long.
            self.computed = Some(thread::spawn(|| (full.signatures(), full)));
        }
    }

    /// Waits for what is computed beside the reading; what is written down then is all there is.
    pub fn settle(&mut self) {
        let Some(computed) = self.computed.take() else { return };
        let (signatures, mut done) = computed.join().unwrap_or_else(|panic| resume_unwind(panic));
        self.keep(signatures);
        done.clear();
        self.spare = done;
    }

    fn keep(&mut self, signatures: Vec<(T, Signature)>) {
        for one in signatures {
            if self.is_kept(&one.1) {
                self.kept.push(one);
            }
            while self.kept.len() > self.most_kept && self.level < u16::BITS {
                self.level += 1;
                let mut kept = std::mem::take(&mut self.kept);
                kept.retain(|(_, signature)| self.is_kept(signature));
                self.kept = kept;
            }
        }
    }

    /// By one place of the signature, which near-duplicates mostly share and equal documents
    /// always.
    fn is_kept(&self, signature: &Signature) -> bool {
        signature.0[0].trailing_zeros() >= self.level
    }

    /// The near-duplicates.
    pub fn finish(mut self) -> Groups<T> {
        self.settle();
        let rest = self.waiting.signatures();
        self.keep(rest);
        let kept = &self.kept;
        let mut sets = Sets((0..kept.len() as u32).collect());
        // Equal signatures first, so that equal documents are in one group whatever the bands say;
        // of each the first goes on.
        sets.join(kept, 0..PLACES);
        for band in (0..PLACES).step_by(BAND) {
            sets.join(kept, band..band + BAND);
        }
        Groups { groups: sets.groups(kept), one_in: 1 << self.level }
    }
}

/// Disjoint sets of documents: each points to an earlier one of its set, the first to itself.
struct Sets(Vec<u32>);

impl Sets {
    fn first(&mut self, mut document: u32) -> u32 {
        while self.0[document as usize] != document {
            let next = self.0[document as usize];
            self.0[document as usize] = self.0[next as usize];
            document = next;
        }
        document
    }

    /// Joins the sets of documents that agree in a band and are alike.
    fn join<T: Sync>(&mut self, kept: &[(T, Signature)], band: Range<usize>) {
        let firsts: Vec<u32> = (0..kept.len() as u32).filter(|&document| self.first(document) == document).collect();
        let of_band = |document: u32| hash(&kept[document as usize].1.0[band.clone()]);
        let keys = firsts.into_par_iter().map(|document| (of_band(document), document)).collect();
        let keys = without_most_singles(keys);
        for same in keys.chunk_by(|one, two| one.0 == two.0).filter(|same| same.len() > 1) {
            let mut leaders: Vec<u32> = Vec::new();
            for &(_, document) in same {
                let signature = &kept[document as usize].1;
                let alike = leaders.iter().copied().find(|&leader| {
                    self.first(leader) == self.first(document) || kept[leader as usize].1.similarity(signature) >= ALIKE
                });
                match alike {
                    Some(leader) => {
                        let (one, two) = (self.first(leader), self.first(document));
                        self.0[one.max(two) as usize] = one.min(two);
                    }
                    None if leaders.len() < MOST_LEADERS => leaders.push(document),
                    None => {}
                }
            }
        }
    }

    /// The sets of more than one document.
    fn groups<T: Copy>(mut self, kept: &[(T, Signature)]) -> Vec<Vec<T>> {
        let mut members: Vec<(u32, u32)> =
            (0..kept.len() as u32).map(|document| (self.first(document), document)).collect();
        members.sort_unstable();
        let sets = members.chunk_by(|one, two| one.0 == two.0).filter(|set| set.len() > 1);
        sets.map(|set| set.iter().map(|&(_, document)| kept[document as usize].0).collect()).collect()
    }
}

/// A hash of places of a signature.
fn hash(places: &[u16]) -> u64 {
    let mut bytes = [0; 2 * PLACES];
    bytes.chunks_exact_mut(2).zip(places).for_each(|(bytes, place)| bytes.copy_from_slice(&place.to_le_bytes()));
    xxh3_64(&bytes[..2 * places.len()])
}

/// Keys with their documents, in the order of the keys. Most keys stand alone; of these nearly all are left
/// out, those whose lowest bits no other has, so that they need not be sorted.
fn without_most_singles(mut keys: Vec<(u64, u32)>) -> Vec<(u64, u32)> {
    let slots = (4 * keys.len()).next_power_of_two();
    let (mut seen, slot) = (vec![0u8; slots], |key: u64| key as usize & (slots - 1));
    keys.iter().for_each(|&(key, _)| seen[slot(key)] = seen[slot(key)].saturating_add(1));
    keys.retain(|&(key, _)| seen[slot(key)] > 1);
    keys.par_sort_unstable();
    keys
}

#[cfg(test)]
mod tests;
