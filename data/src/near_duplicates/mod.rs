//! Finds documents that are nearly the same: two versions of a letter, a mail and the one that
//! quotes it in full, a page with another date.
//!
//! Two documents are near-duplicates if the Jaccard similarity of their sets of five-word shingles
//! is about [`SIMILARITY_THRESHOLD`] or more. Each document has a MinHash [`Signature`]; documents
//! that agree in all bins of one of 32 bands are compared (locality-sensitive hashing: Leskovec,
//! Rajaraman and Ullman, "Mining of Massive Datasets", chapter 3). Near-duplicates of one document
//! are taken to be near-duplicates of each other.
//!
//! Memory is bounded: only the first mebibyte of a document is used, and of more than half a
//! million documents only a sample, which tends to keep near-duplicates together.

mod signature;
mod words;

pub use signature::Signature;
pub use words::shingles;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use signature::BINS;
use std::{ops::Range, panic::resume_unwind, thread, thread::JoinHandle};
use xxhash_rust::xxh3::xxh3_64;

/// Documents are near-duplicates from this Jaccard similarity on. The standard error of its
/// estimate is 0.04.
pub const SIMILARITY_THRESHOLD: f64 = 0.7;

/// At most about this many bytes of a document are used: two long texts that share a beginning of
/// this length are versions of one.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// At most this many documents are kept for comparison, in 150 MB.
const MAX_KEPT: usize = 1 << 19;

/// Signatures are computed once this much text has been collected.
const BATCH_BYTES: usize = 8 << 20;

/// Bins per band; documents that agree in all of them are compared. At a similarity of 0.7 all but
/// one in 5,000 pairs agree in some band, at 0.5 most, at 0.2 one in 20.
const BAND_BINS: usize = 4;

/// Within a band, each document is compared with at most this many others: if more are dissimilar,
/// the band carries no information.
const MAX_LEADERS: usize = 16;

/// Finds near-duplicates among documents that are added piece by piece; `T` identifies a document.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct NearDuplicates<T> {
    /// The documents whose signatures are not yet computed, followed by the open one.
    waiting: Batch<T>,
    /// The thread that computes signatures while further documents are added.
    #[serde(skip)]
    worker: Option<JoinHandle<BatchSignatures<T>>>,
    /// The previous batch, whose buffers are reused.
    #[serde(skip)]
    spare: Batch<T>,
    kept: Vec<(T, Signature)>,
    most_kept: usize,
    /// One in 2^level documents is kept.
    level: u32,
}

/// A batch of concatenated documents.
#[derive(Serialize, Deserialize)]
struct Batch<T> {
    text: String,
    /// End of each document; the text after the last end belongs to the open document.
    ends: Vec<(T, usize)>,
}

/// Signatures, and the batch they were computed from.
type BatchSignatures<T> = (Vec<(T, Signature)>, Batch<T>);

/// The near-duplicates found.
pub struct Groups<T> {
    /// Groups of near-duplicates, ordered by their first documents.
    pub groups: Vec<Vec<T>>,
    /// One in this many documents was examined; 0 if none was.
    pub one_in: u64,
}

impl<T> Default for Groups<T> {
    /// No document was examined.
    fn default() -> Self {
        Self { groups: Vec::new(), one_in: 0 }
    }
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { text: String::new(), ends: Vec::new() }
    }
}

impl<T> Batch<T> {
    /// Start of the open document.
    fn open_start(&self) -> usize {
        self.ends.last().map_or(0, |&(_, end)| end)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }
}

impl<T: Copy> Batch<T> {
    /// The signatures of the documents that are long enough to have one.
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
        let (waiting, spare) = (Batch::default(), Batch::default());
        Self { waiting, worker: None, spare, kept: Vec::new(), most_kept: MAX_KEPT, level: 0 }
    }
}

impl<T: Copy + Send + Sync + 'static> NearDuplicates<T> {
    /// Adds text to the open document.
    pub fn add(&mut self, text: &str) {
        let waiting = &mut self.waiting;
        // The last character may reach beyond: so nothing follows it, however the text is divided.
        let room = MAX_DOCUMENT_BYTES.saturating_sub(waiting.text.len() - waiting.open_start());
        waiting.text.push_str(&text[..text.ceil_char_boundary(room)]);
    }

    /// Ends the open document, which `name` identifies.
    pub fn end_document(&mut self, name: T) {
        let waiting = &mut self.waiting;
        waiting.ends.push((name, waiting.text.len()));
        if waiting.text.len() >= BATCH_BYTES || waiting.ends.len() >= 1 << 16 {
            self.wait_for_worker();
            let full = std::mem::replace(&mut self.waiting, std::mem::take(&mut self.spare));
            // On another thread: it takes about as long as reading does.
            self.worker = Some(thread::spawn(|| (full.signatures(), full)));
        }
    }

    /// Waits for the thread, so that serializing `self` afterwards loses nothing.
    pub fn wait_for_worker(&mut self) {
        let Some(computed) = self.worker.take() else { return };
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

    /// Decides by one bin of the signature, which near-duplicates mostly and equal documents always
    /// share.
    fn is_kept(&self, signature: &Signature) -> bool {
        signature.0[0].trailing_zeros() >= self.level
    }

    /// Finds the groups.
    pub fn finish(mut self) -> Groups<T> {
        self.wait_for_worker();
        let rest = self.waiting.signatures();
        self.keep(rest);
        let kept = &self.kept;
        let mut sets = DisjointSets((0..kept.len() as u32).collect());
        // Equal signatures first, so that equal documents are in one group whatever the bands say;
        // only the first of each group is processed further.
        sets.join(kept, 0..BINS);
        for band in (0..BINS).step_by(BAND_BINS) {
            sets.join(kept, band..band + BAND_BINS);
        }
        Groups { groups: sets.groups(kept), one_in: 1 << self.level }
    }
}

/// Disjoint sets (union-find): each document points to an earlier one of its set, the first to
/// itself.
struct DisjointSets(Vec<u32>);

impl DisjointSets {
    fn find_root(&mut self, mut document: u32) -> u32 {
        while self.0[document as usize] != document {
            let next = self.0[document as usize];
            self.0[document as usize] = self.0[next as usize];
            document = next;
        }
        document
    }

    /// Joins the sets of documents that agree in a band and are similar.
    fn join<T: Sync>(&mut self, kept: &[(T, Signature)], band: Range<usize>) {
        let roots: Vec<u32> = (0..kept.len() as u32).filter(|&document| self.find_root(document) == document).collect();
        let band_hash = |document: u32| hash(&kept[document as usize].1.0[band.clone()]);
        let keys = roots.into_par_iter().map(|document| (band_hash(document), document)).collect();
        let keys = sorted_without_singles(keys);
        for same in keys.chunk_by(|one, two| one.0 == two.0).filter(|same| same.len() > 1) {
            let mut leaders: Vec<u32> = Vec::new();
            for &(_, document) in same {
                let signature = &kept[document as usize].1;
                let alike = leaders.iter().copied().find(|&leader| {
                    self.find_root(leader) == self.find_root(document)
                        || kept[leader as usize].1.similarity(signature) >= SIMILARITY_THRESHOLD
                });
                match alike {
                    Some(leader) => {
                        let (one, two) = (self.find_root(leader), self.find_root(document));
                        self.0[one.max(two) as usize] = one.min(two);
                    }
                    None if leaders.len() < MAX_LEADERS => leaders.push(document),
                    None => {}
                }
            }
        }
    }

    /// The sets of more than one document.
    fn groups<T: Copy>(mut self, kept: &[(T, Signature)]) -> Vec<Vec<T>> {
        let mut members: Vec<(u32, u32)> =
            (0..kept.len() as u32).map(|document| (self.find_root(document), document)).collect();
        members.sort_unstable();
        let sets = members.chunk_by(|one, two| one.0 == two.0).filter(|set| set.len() > 1);
        sets.map(|set| set.iter().map(|&(_, document)| kept[document as usize].0).collect()).collect()
    }
}

/// A hash of the bins of a band.
fn hash(bins: &[u16]) -> u64 {
    let mut bytes = [0; 2 * BINS];
    bytes.chunks_exact_mut(2).zip(bins).for_each(|(bytes, bin)| bytes.copy_from_slice(&bin.to_le_bytes()));
    xxh3_64(&bytes[..2 * bins.len()])
}

/// Sorts the keys, dropping nearly all that occur once: those whose lowest bits no other key has
/// need not be sorted.
fn sorted_without_singles(mut keys: Vec<(u64, u32)>) -> Vec<(u64, u32)> {
    let slots = (4 * keys.len()).next_power_of_two();
    let (mut seen, slot) = (vec![0u8; slots], |key: u64| key as usize & (slots - 1));
    keys.iter().for_each(|&(key, _)| seen[slot(key)] = seen[slot(key)].saturating_add(1));
    keys.retain(|&(key, _)| seen[slot(key)] > 1);
    keys.par_sort_unstable();
    keys
}

#[cfg(test)]
mod tests;
