//! Holds out the most recent text: for mails and chats this is what a model would meet next.

use super::candidates::Candidate;
use super::sides::{SHORTEST_END, Split, characters_before, percent};
use crate::near_duplicates::Groups;
use crate::prepare::error::Error;
use crate::source::Dated;
use bit_vec::BitVec;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// At most this many documents can be held out by order, at 16 bytes each.
const MAX_IN_ORDER: usize = 1 << 23;

/// How often documents that must return to training are replaced by others. Each round may return
/// some of those, too; what is missing in the end is little.
const MAX_ROUNDS: usize = 8;

/// The documents in reading order.
#[derive(Default, Serialize, Deserialize)]
pub struct Order {
    documents: u64,
    /// Bytes and characters of each.
    sizes: Vec<(u64, u64)>,
    /// Dates of the documents that have one, by document number, in reading order.
    dated: Vec<(u64, Dated)>,
    /// Number of documents in each source.
    pub sources: Vec<u64>,
}

impl Order {
    /// Sets the date of the next document pushed.
    pub fn date(&mut self, when: Dated) {
        if self.sizes.len() < MAX_IN_ORDER {
            self.dated.push((self.documents, when));
        }
    }

    pub fn push(&mut self, document: Candidate) {
        self.documents += 1;
        if self.sizes.len() < MAX_IN_ORDER {
            self.sizes.push((document.bytes, document.characters));
        }
    }

    /// Runs of documents that follow each other in time: all dated documents form one run; of the
    /// undated, each source with several documents forms one, and all sources with a single
    /// document together form one, in the order of their names. Each chat is its own run.
    fn runs(&self) -> Vec<Vec<u64>> {
        let (mut runs, mut alone, mut next) = (Vec::new(), Vec::new(), 0);
        let mut dated = self.dated.iter().peekable();
        for &documents in &self.sources {
            let undated = |number: &u64| dated.next_if(|(of, _)| of == number).is_none();
            let of_source: Vec<u64> = (next..next + documents).filter(undated).collect();
            next += documents;
            if documents == 1 { alone.extend(of_source) } else { runs.push(of_source) }
        }
        runs.push(alone);
        let mut by_time = Vec::new();
        for &(number, when) in &self.dated {
            match when {
                Dated::At(time) => by_time.push((time, number)),
                Dated::Throughout => runs.push(vec![number]),
            }
        }
        by_time.sort_unstable();
        runs.push(by_time.into_iter().map(|(_, number)| number).collect());
        runs
    }

    /// Chooses the last documents of each run that make up `share` of its bytes, and the end of the
    /// next one if it does not fit. `hashes` are those of the documents' content. A document is
    /// skipped if a copy or near-duplicate of it is for training.
    pub fn hold_out(&self, share: f64, hashes: &[u64], near: &Groups<Candidate>) -> Result<Split, Error> {
        if self.documents > MAX_IN_ORDER as u64 {
            return Err(Error::unusable(format!(
                "the text has {} documents, more than the {MAX_IN_ORDER} of which the last can be held out; hold out any of them",
                self.documents
            )));
        }
        let copied = copied(hashes, near);
        let mut passed_over = BTreeSet::new();
        let (mut whole, mut cuts) = self.tails(share, &copied, &passed_over);
        for _ in 0..MAX_ROUNDS {
            let back = return_copies_to_training(&mut whole, hashes, near);
            if back.is_empty() {
                break;
            }
            // Replace the documents that had to return to training.
            passed_over.extend(back);
            (whole, cuts) = self.tails(share, &copied, &passed_over);
        }
        return_copies_to_training(&mut whole, hashes, near);
        if whole.none() && cuts.is_empty() {
            let all_copied = || {
                let what = "every document has a duplicate or near-duplicate, so no last one can be held out; hold out \
                            any of them, or give more varied documents";
                Error::unusable(what)
            };
            let last = (0..self.documents).rev().find(|number| !copied.contains(number));
            whole.set(last.ok_or_else(all_copied)? as usize, true);
        }
        let percent = percent(share);
        let rule = format!(
            "the last {percent}%: of mails by their dates, of each chat, of each other file that holds several documents, \
             and of the others in their order; copies of earlier documents stay in training"
        );
        Ok(Split { rule, whole, cuts })
    }

    /// The last documents of each run, except those passed over: the ones held out whole, and the
    /// cuts. Documents with copies are not cut.
    fn tails(&self, share: f64, copied: &BTreeSet<u64>, passed_over: &BTreeSet<u64>) -> (BitVec, BTreeMap<u64, u64>) {
        let mut whole = BitVec::from_elem(self.sizes.len(), false);
        let mut cuts = BTreeMap::new();
        for run in self.runs() {
            let sizes = |number: &u64| self.sizes[*number as usize];
            let mut left = share * run.iter().map(|number| sizes(number).0 as f64).sum::<f64>();
            for number in run.iter().rev().filter(|number| !passed_over.contains(number)) {
                let (bytes, characters) = sizes(number);
                if bytes as f64 <= left {
                    whole.set(*number as usize, true);
                    left -= bytes as f64;
                } else if !copied.contains(number) {
                    let end = left / bytes as f64;
                    if end * characters as f64 >= SHORTEST_END {
                        cuts.insert(*number, characters_before(characters, end));
                    }
                    break;
                }
            }
        }
        (whole, cuts)
    }
}

/// The documents that have a copy or a near-duplicate.
fn copied(hashes: &[u64], near: &Groups<Candidate>) -> BTreeSet<u64> {
    let mut sorted: Vec<(u64, u64)> = hashes.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let equal = sorted.chunk_by(|one, two| one.0 == two.0).filter(|equal| equal.len() > 1);
    let near = near.groups.iter().flatten().map(|document| document.number);
    equal.flatten().map(|&(_, number)| number).chain(near).collect()
}

/// Returns copies and near-duplicates of training documents to training, and lists those returned.
fn return_copies_to_training(whole: &mut BitVec, hashes: &[u64], near: &Groups<Candidate>) -> Vec<u64> {
    let before = whole.clone();
    let validates = |whole: &BitVec, number: u64| whole.get(number as usize) == Some(true);
    let held_out: BTreeSet<u64> =
        (0..).zip(hashes).filter(|&(number, _)| validates(whole, number)).map(|(_, &hash)| hash).collect();
    let in_training: BTreeSet<u64> = (0..)
        .zip(hashes)
        .filter(|&(number, hash)| !validates(whole, number) && held_out.contains(hash))
        .map(|(_, &hash)| hash)
        .collect();
    for (number, _) in hashes.iter().enumerate().filter(|(_, hash)| in_training.contains(hash)) {
        whole.set(number, false);
    }
    for group in &near.groups {
        if group.iter().any(|document| !validates(whole, document.number)) {
            group.iter().for_each(|document| whole.set(document.number as usize, false));
        }
    }
    (0..).zip(&before).filter(|&(number, was)| was && !validates(whole, number)).map(|(number, _)| number).collect()
}
