//! Which text validates: never the same text on both sides.
//!
//! Whole documents do, where they make up about the share that was asked for, from a half of it to
//! one and a half. Where they cannot, as in a folder of one long text and two notes, the rest comes
//! from the ends of long documents: each is cut at the same share of its characters, what is before
//! the cut teaches and what is behind it validates. A single document is cut so from the start, as
//! nanoGPT cuts it.

use super::error::Error;
use bit_vec::BitVec;
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap, collections::BTreeSet, collections::BinaryHeap};
use xxhash_rust::xxh3::Xxh3Default;

/// A side of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Train,
    Val,
}

/// Up to so many documents are chosen so that their bytes make the wanted share; of more, chance
/// does well enough, unless some are so long that it does not: then so many of the longest are
/// chosen like few.
const FEW: usize = 1000;

/// A document is long enough to be cut where so many characters are behind the cut: less validates
/// nothing.
const SHORTEST_END: f64 = 64.0;

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

/// Collects documents as the text is read for the first time.
#[derive(Default)]
pub struct SplitBuilder {
    val_fraction: f64,
    /// Whether one of several documents may be cut, so that its end validates.
    cuts: bool,
    documents: u64,
    bytes: u64,
    by_chance_bytes: u64,
    hashes: Vec<u64>,
    longest: Longest,
    by_chance: BitVec,
}

/// A document that may be chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    bytes: u64,
    number: u64,
    hash: u64,
    characters: u64,
}

/// The longest documents.
#[derive(Default)]
struct Longest {
    shortest_first: BinaryHeap<Reverse<Candidate>>,
    /// Bytes of the longest that found no place.
    beaten: u64,
}

impl Longest {
    fn push(&mut self, candidate: Candidate) {
        self.shortest_first.push(Reverse(candidate));
        if self.shortest_first.len() > FEW
            && let Some(Reverse(shortest)) = self.shortest_first.pop()
        {
            self.beaten = self.beaten.max(shortest.bytes);
        }
    }

    /// In the order in which they were read, and only those longer than any that found no place: so
    /// all copies of a document are among them or none.
    fn in_order(self) -> Vec<Candidate> {
        let all = self.shortest_first.into_iter().map(|Reverse(candidate)| candidate);
        let mut kept: Vec<Candidate> = all.filter(|candidate| candidate.bytes > self.beaten).collect();
        kept.sort_unstable_by_key(|candidate| candidate.number);
        kept
    }
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

    /// Adds a document by the hash of its content.
    pub fn push(&mut self, hash: u64, bytes: u64, characters: u64) {
        let by_chance = (hash as f64) < self.val_fraction * 2f64.powi(64);
        self.longest.push(Candidate { bytes, number: self.documents, hash, characters });
        self.documents += 1;
        self.bytes += bytes;
        self.by_chance_bytes += if by_chance { bytes } else { 0 };
        self.by_chance.push(by_chance);
        if self.hashes.len() < MOST_HASHES {
            self.hashes.push(hash);
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
        let longest = std::mem::take(&mut self.longest).in_order();
        let split = match &longest[..] {
            [only] if self.documents == 1 => self.cut_in_two(only)?,
            _ if longest.is_empty() || self.documents > FEW as u64 && self.is_about_the_share(self.by_chance_bytes) => {
                let percent = self.percent();
                let rule = format!("documents whose content has a seeded hash in the lowest {percent}% of its range");
                Split { rule, whole: std::mem::take(&mut self.by_chance), cuts: BTreeMap::new() }
            }
            _ => self.choose(&longest)?,
        };
        let val = split.whole.count_ones();
        if val == 0 && split.cuts.is_empty() || val == documents {
            return Err(Error::OneSided { val, documents });
        }
        let duplicates = Duplicates::count(self.hashes, &split, documents);
        Ok((split, duplicates))
    }

    fn percent(&self) -> f64 {
        (self.val_fraction * 1000.0).round() / 10.0
    }

    /// Whether so many bytes are about the share that is to validate.
    fn is_about_the_share(&self, bytes: u64) -> bool {
        let share = bytes as f64 / self.bytes as f64;
        (0.5 * self.val_fraction..=1.5 * self.val_fraction).contains(&share)
    }

    fn cut_in_two(&self, only: &Candidate) -> Result<Split, Error> {
        if only.characters < 2 {
            return Err(Error::unusable("the text is one character long; give more"));
        }
        Ok(Split {
            rule: format!("the last {}% of the characters of the only document", self.percent()),
            whole: BitVec::default(),
            cuts: BTreeMap::from([(only.number, only.characters_before(self.val_fraction))]),
        })
    }

    /// Chooses among the longest documents; the others, where there are more, stay where chance has
    /// put them.
    fn choose(&self, longest: &[Candidate]) -> Result<Split, Error> {
        let by_chance = |candidate: &&Candidate| self.by_chance.get(candidate.number as usize) == Some(true);
        let chance_among_longest: u64 = longest.iter().filter(by_chance).map(|candidate| candidate.bytes).sum();
        let others = self.by_chance_bytes - chance_among_longest;
        // The bytes of all documents with a hash: equal ones stay together.
        let mut groups: BTreeMap<u64, u64> = BTreeMap::new();
        for candidate in longest {
            *groups.entry(candidate.hash).or_default() += candidate.bytes;
        }
        if groups.len() <= 1 && longest.len() as u64 == self.documents {
            return Err(Error::unusable(format!(
                "all {} documents are the same text, which cannot both teach and validate; give different ones",
                self.documents
            )));
        }
        let mut left = (self.val_fraction * self.bytes as f64 - others as f64).max(0.0);
        let (mut chosen, mut chosen_bytes) = (BTreeSet::new(), others);
        for (&hash, &bytes) in &groups {
            if bytes as f64 <= left && chosen.len() + 1 < groups.len() {
                left -= bytes as f64;
                chosen_bytes += bytes;
                chosen.insert(hash);
            }
        }
        let mut cuts = self.cuts_for(left, longest, &chosen);
        let smallest = groups.iter().min_by_key(|&(_, bytes)| bytes);
        if let (0, Some((&hash, &bytes))) = (chosen_bytes, smallest)
            && (cuts.is_empty() || self.is_about_the_share(bytes))
        {
            // All are larger than the share: the smallest then.
            chosen.insert(hash);
            chosen_bytes = bytes;
        }
        if self.is_about_the_share(chosen_bytes) {
            cuts.clear();
        }
        let mut whole = BitVec::default();
        let mut candidates = longest.iter().peekable();
        for number in 0..self.documents {
            whole.push(match candidates.next_if(|candidate| candidate.number == number) {
                Some(candidate) => chosen.contains(&candidate.hash),
                None => self.by_chance.get(number as usize) == Some(true),
            });
        }
        Ok(Split { rule: self.rule(longest, &cuts), whole, cuts })
    }

    /// Where to cut the documents that were not chosen, so that their ends make up `wanted` bytes;
    /// only long ones are cut.
    fn cuts_for(&self, wanted: f64, longest: &[Candidate], chosen: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
        if !self.cuts {
            return BTreeMap::new();
        }
        let share_of = |documents: &[&Candidate]| {
            let bytes: u64 = documents.iter().map(|candidate| candidate.bytes).sum();
            (wanted / bytes as f64).min(0.5)
        };
        let mut long: Vec<&Candidate> = longest.iter().filter(|candidate| !chosen.contains(&candidate.hash)).collect();
        let share = share_of(&long);
        long.retain(|candidate| share * candidate.characters as f64 >= SHORTEST_END);
        let share = share_of(&long);
        long.iter().map(|candidate| (candidate.number, candidate.characters_before(share))).collect()
    }

    fn rule(&self, longest: &[Candidate], cuts: &BTreeMap<u64, u64>) -> String {
        let percent = self.percent();
        let mut whole = format!(
            "documents in the order of a seeded hash of their content, as long as they fit into {percent}% of the bytes; equal \
             documents together"
        );
        if longest.len() as u64 != self.documents {
            whole = format!(
                "of the {} longest {whole}; of the others those whose hash is in the lowest {percent}% of its range",
                longest.len()
            );
        }
        let Some(cut) = longest.iter().find(|candidate| cuts.contains_key(&candidate.number)) else { return whole };
        let share = 1.0 - cuts[&cut.number] as f64 / cut.characters as f64;
        let documents = match cuts.len() {
            1 => "the one long document".to_owned(),
            many => format!("each of {many} long documents"),
        };
        let last = 100.0 * share;
        format!("{whole}; and to make up the {percent}%, the last {last:.1}% of the characters of {documents}")
    }
}

impl Candidate {
    /// How many characters are before the cut that leaves a `share` of them behind it.
    fn characters_before(&self, share: f64) -> u64 {
        ((self.characters as f64 * (1.0 - share)) as u64).clamp(1, self.characters - 1)
    }
}

/// Which text validates.
pub struct Split {
    /// The rule in words: what validates.
    pub rule: String,
    /// Set for the documents that validate as a whole.
    whole: BitVec,
    /// The documents of which the end validates, and how many characters of each teach.
    cuts: BTreeMap<u64, u64>,
}

impl Split {
    /// The side on which a document (its number in reading order) begins.
    pub fn side(&self, document: u64) -> Side {
        if self.whole.get(document as usize) == Some(true) { Side::Val } else { Side::Train }
    }

    /// How many characters of a document teach, where its end validates.
    pub fn cut(&self, document: u64) -> Option<u64> {
        self.cuts.get(&document).copied()
    }
}

/// What the hashes of the documents tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicates {
    /// Documents that were looked at: all, or the first 16,777,216.
    pub examined: u64,
    /// Of these, documents equal to an earlier one.
    pub exact: u64,
    /// Different documents that stand on both sides.
    pub on_both_sides: u64,
}

impl Duplicates {
    fn count(mut hashes: Vec<u64>, split: &Split, documents: u64) -> Self {
        let examined = hashes.len() as u64;
        debug_assert!(examined <= documents);
        // The lowest bit makes room for the side, so that one sorted list answers both questions.
        for (document, hash) in hashes.iter_mut().enumerate() {
            *hash = *hash & !1 | u64::from(split.side(document as u64) == Side::Val);
        }
        hashes.sort_unstable();
        let groups = || hashes.chunk_by(|a, b| a & !1 == b & !1);
        let on_both_sides = groups().filter(|group| group.first() != group.last()).count() as u64;
        Self { examined, exact: examined - groups().count() as u64, on_both_sides }
    }
}

#[cfg(test)]
mod tests;
