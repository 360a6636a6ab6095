//! What was written last validates: of mails and chats what came last, as a model would meet it.

use super::candidates::Candidate;
use super::sides::{SHORTEST_END, Split, characters_before};
use crate::near_duplicates::Groups;
use crate::prepare::error::Error;
use crate::source::Dated;
use bit_vec::BitVec;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// So many documents can be held out by their order: 16 bytes each.
const MOST_IN_ORDER: usize = 1 << 23;

/// How often others are looked for in the place of documents that have to teach. Each time some of
/// these may have to teach, too; what is missing in the end is little.
const MOST_ROUNDS: usize = 8;

/// The documents in the order in which they were read.
#[derive(Default, Serialize, Deserialize)]
pub struct Order {
    documents: u64,
    /// Bytes and characters of each.
    sizes: Vec<(u64, u64)>,
    /// When those were written that say so, in their order.
    pub dated: Vec<(u64, Dated)>,
    /// How many documents each source held.
    pub sources: Vec<u64>,
}

impl Order {
    pub fn push(&mut self, document: Candidate) {
        self.documents += 1;
        if self.sizes.len() < MOST_IN_ORDER {
            self.sizes.push((document.bytes, document.characters));
        }
    }

    /// Documents that follow each other in time: those of all sources that say when they were
    /// written; of the others those of a source with several, and those of all sources that hold
    /// one each, in the order of their names. Each chat is a run of its own.
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

    /// Chooses the last documents of each run, so that they make up this share of its bytes, and
    /// where the next does not fit, its end. `hashes` are those of the documents' content; a
    /// document with a copy or near-duplicate that teaches is passed over.
    pub fn hold_out(&self, share: f64, hashes: &[u64], near: &Groups<Candidate>) -> Result<Split, Error> {
        if self.documents > MOST_IN_ORDER as u64 {
            return Err(Error::unusable(format!(
                "the text has {} documents, and of more than {MOST_IN_ORDER} the last are not held out; hold out any of them",
                self.documents
            )));
        }
        let copied = copied(hashes, near);
        let mut passed_over = BTreeSet::new();
        let (mut whole, mut cuts) = self.tails(share, &copied, &passed_over);
        for _ in 0..MOST_ROUNDS {
            let back = send_copies_back(&mut whole, hashes, near);
            if back.is_empty() {
                break;
            }
            // Others validate in the place of those that had to teach.
            passed_over.extend(back);
            (whole, cuts) = self.tails(share, &copied, &passed_over);
        }
        send_copies_back(&mut whole, hashes, near);
        if whole.none() && cuts.is_empty() {
            let all_copied = || {
                let what = "every document has a copy or one that is nearly the same, and none can be held out for \
                            being the last; hold out any of them, or give more different documents";
                Error::unusable(what)
            };
            let last = (0..self.documents).rev().find(|number| !copied.contains(number));
            whole.set(last.ok_or_else(all_copied)? as usize, true);
        }
        let percent = (share * 1000.0).round() / 10.0;
        let rule = format!(
            "the last {percent}%: of mails by their dates, of each chat, of each other file that holds several documents, \
             and of the others in their order; what stands before as well teaches"
        );
        Ok(Split { rule, whole, cuts })
    }

    /// The last documents of each run but those passed over: those held out whole, and where others
    /// are cut. None is cut that has a copy.
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

/// A document that teaches keeps its copies and near-duplicates from validating: those that it kept.
fn send_copies_back(whole: &mut BitVec, hashes: &[u64], near: &Groups<Candidate>) -> Vec<u64> {
    let before = whole.clone();
    let validates = |whole: &BitVec, number: u64| whole.get(number as usize) == Some(true);
    let held_out: BTreeSet<u64> =
        (0..).zip(hashes).filter(|&(number, _)| validates(whole, number)).map(|(_, &hash)| hash).collect();
    let taught: BTreeSet<u64> = (0..)
        .zip(hashes)
        .filter(|&(number, hash)| !validates(whole, number) && held_out.contains(hash))
        .map(|(_, &hash)| hash)
        .collect();
    for (number, _) in hashes.iter().enumerate().filter(|(_, hash)| taught.contains(hash)) {
        whole.set(number, false);
    }
    for group in &near.groups {
        if group.iter().any(|document| !validates(whole, document.number)) {
            group.iter().for_each(|document| whole.set(document.number as usize, false));
        }
    }
    (0..).zip(&before).filter(|&(number, was)| was && !validates(whole, number)).map(|(number, _)| number).collect()
}
