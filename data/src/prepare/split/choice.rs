//! Chooses documents one by one where the random split would miss the fraction.
//!
//! The documents to choose from are a [`Pool`]; all others are split at random. An attempt with a
//! pool takes these steps ([`Chooser::attempt`]):
//!
//! | step | what validates as well | if |
//! |---|---|---|
//! | 1 | groups of equal documents and near-duplicates, in the order of their hashes | they fit |
//! | 2 | more of the documents outside the pool, at random | allowed, and the split is not close |
//! | 3 | the smallest group | nothing validates yet, and it is close or nothing can be cut |
//! | 4 | the ends of documents of the pool | the split is not close |
//!
//! For example, a tenth of a text of 100,000 bytes and two notes of 10 is 10,002 bytes. Both notes
//! fit (step 1), and the end of the text makes up the other 9,982 bytes (step 4). Of two texts of
//! 50 and 60 bytes none fits, and both are too short to be cut, so the shorter validates (step 3).

use super::builder::SplitBuilder;
use super::candidates::{Candidate, with_near_duplicates};
use super::random::random_sides;
use super::repeated::Copies;
use super::sides::{SHORTEST_END, Split, characters_before, percent};
use crate::prepare::error::Error;
use bit_vec::BitVec;
use std::collections::{BTreeMap, BTreeSet};

/// The documents to choose from; all others are split at random.
struct Pool {
    /// Chosen one by one; in reading order.
    candidates: Vec<Candidate>,
    /// Chosen with all their copies, by hash of their content; disjoint from the candidates. These
    /// are the documents with many copies, or all documents if there are at most 16,384 different
    /// ones, which are all counted (`repeated.rs`).
    copies: BTreeMap<u64, Copies>,
    /// Whether the random split may take more than the fraction of the other documents if it is
    /// missed.
    may_exceed: bool,
}

/// Documents that stay together.
#[derive(Default)]
struct Group {
    bytes: u64,
    /// Bytes without copies.
    distinct_bytes: u64,
}

/// What validates as a whole.
struct Chosen {
    /// The chosen groups, by their hashes.
    groups: BTreeSet<u64>,
    /// The fraction of the documents outside the pool that the random split holds out.
    random_share: f64,
    /// Bytes of both.
    bytes: u64,
    /// Bytes still missing to the fraction.
    missing: f64,
    /// Bytes of distinct text that may still be chosen.
    room: f64,
}

/// The ends of long documents.
struct Ends {
    /// The documents, with the number of characters before the cut.
    cuts: BTreeMap<u64, u64>,
    /// Approximate number of bytes after the cuts.
    bytes: f64,
}

/// A split, and how many bytes it holds out.
struct Attempt {
    split: Split,
    bytes: u64,
}

/// Chooses first among the candidates and, if that misses the fraction, also among the counted
/// documents: those with many copies, or all if there are few different ones. `None` if there is
/// nothing to choose from.
///
/// # Errors
/// When all documents are equal.
pub fn choose(text: &SplitBuilder, candidates: Vec<Candidate>) -> Result<Option<Split>, Error> {
    // With too many documents, the last ones have no hash.
    let copies = if text.has_all_hashes() { text.repeated.copies(&text.hashes) } else { BTreeMap::new() };
    let copied_bytes: u64 = copies.values().map(|copies| copies.bytes - copies.bytes_of_one()).sum();
    let chooser = Chooser { text, copied_bytes };
    let longest = Pool { candidates, copies: BTreeMap::new(), may_exceed: false };
    let mut split = None;
    if !longest.candidates.is_empty() {
        let attempt = chooser.choose_from(&longest)?;
        if text.is_close_to_share(attempt.bytes) {
            return Ok(Some(attempt.split));
        }
        split = Some(attempt.split);
    }
    let longest_documents = longest.documents();
    let wider = chooser.with_copies(longest.candidates, copies);
    if wider.documents() == 0 || wider.documents() == longest_documents && !wider.may_exceed {
        return Ok(split);
    }
    Ok(Some(chooser.choose_from(&wider)?.split))
}

/// Chooses documents of a text.
struct Chooser<'a> {
    text: &'a SplitBuilder,
    /// Bytes of repeated documents beyond their first copy, as far as they are counted.
    copied_bytes: u64,
}

impl Pool {
    fn documents(&self) -> u64 {
        self.candidates.len() as u64 + self.copies.values().map(|copies| copies.documents).sum::<u64>()
    }

    /// Groups documents by hash: equal ones stay together.
    fn groups(&self) -> BTreeMap<u64, Group> {
        let group = |copies: &Copies| Group { bytes: copies.bytes, distinct_bytes: copies.bytes_of_one() };
        let mut groups: BTreeMap<u64, Group> =
            self.copies.iter().map(|(&hash, copies)| (hash, group(copies))).collect();
        for candidate in &self.candidates {
            let group = groups.entry(candidate.hash).or_default();
            if group.bytes == 0 || candidate.resembles {
                group.distinct_bytes += candidate.bytes;
            }
            group.bytes += candidate.bytes;
        }
        groups
    }
}

impl Chooser<'_> {
    /// The pool of the candidates and of the counted documents, and their near-duplicates.
    fn with_copies(&self, candidates: Vec<Candidate>, mut copies: BTreeMap<u64, Copies>) -> Pool {
        let has_copies = |group: &&Vec<Candidate>| group.iter().any(|document| copies.contains_key(&document.hash));
        let candidates = with_near_duplicates(candidates, self.text.near.groups.iter().filter(has_copies));
        for candidate in &candidates {
            copies.remove(&self.text.own_hash(candidate));
        }
        let mut pool = Pool { candidates, copies, may_exceed: false };
        pool.may_exceed = self.text.has_all_hashes() && pool.documents() < self.text.documents;
        pool
    }

    /// The split by a pool. If it leaves one side empty, near-duplicates do not stay together.
    fn choose_from(&self, pool: &Pool) -> Result<Attempt, Error> {
        let all = self.text.documents;
        if pool.documents() == all && self.are_all_equal(pool) {
            return Err(Error::unusable(format!(
                "all {all} documents are equal, so none can be held out for validation; give different ones",
            )));
        }
        let attempt = self.attempt(pool);
        let Split { whole, cuts, .. } = &attempt.split;
        if !cuts.is_empty() || !whole.all() && whole.any() {
            return Ok(attempt);
        }
        // Only near-duplicates, too short to be cut: choose each of them separately.
        let alone = |candidate: &Candidate| {
            let hash = self.text.own_hash(candidate);
            Candidate { hash, resembles: false, ..*candidate }
        };
        let candidates = pool.candidates.iter().map(alone).collect();
        Ok(self.attempt(&Pool { candidates, copies: pool.copies.clone(), ..*pool }))
    }

    /// Whether all documents of a pool are equal.
    fn are_all_equal(&self, pool: &Pool) -> bool {
        let candidates = pool.candidates.iter().map(|candidate| self.text.own_hash(candidate));
        let mut hashes = candidates.chain(pool.copies.keys().copied());
        let first = hashes.next();
        hashes.all(|hash| Some(hash) == first)
    }

    /// The split after the steps in the table above.
    fn attempt(&self, pool: &Pool) -> Attempt {
        let (text, candidates, groups) = (self.text, &pool.candidates, pool.groups());
        let others = self.random_bytes_outside(pool);
        // 1. Groups that fit.
        let mut chosen = self.choose_groups(&groups, others);
        // 2. More of the other documents, at random.
        if pool.may_exceed && !text.is_close_to_share(chosen.bytes) {
            self.raise_random_share(&mut chosen, &groups, others);
        }
        // The cuts of step 4 are found first: step 3 asks whether there are any.
        let cuts = self.cuts_beside(&chosen, candidates);
        // 3. The smallest group, if nothing validates yet because no group fits.
        if chosen.bytes == 0
            && let Some((&hash, smallest)) = groups.iter().min_by_key(|(_, group)| group.bytes)
            && (cuts.is_empty() || text.is_close_to_share(smallest.bytes))
        {
            chosen.groups.insert(hash);
            chosen.bytes = smallest.bytes;
        }
        // 4. The ends of documents, unless whole documents are close.
        let cuts = if text.is_close_to_share(chosen.bytes) { BTreeMap::new() } else { cuts };
        let whole = self.sides(pool, &chosen);
        let bytes = chosen.bytes + bytes_after(&cuts, candidates);
        let rule = self.rule(pool, chosen.random_share, &cuts);
        Attempt { split: Split { rule, whole, cuts }, bytes }
    }

    /// Bytes that the random split holds out among the documents outside a pool.
    fn random_bytes_outside(&self, Pool { candidates, copies, .. }: &Pool) -> u64 {
        let text = self.text;
        let by_chance = |candidate: &&Candidate| text.by_chance.get(candidate.number as usize) == Some(true);
        let alone: u64 = candidates.iter().filter(by_chance).map(|candidate| candidate.bytes).sum();
        let copied = copies.iter().filter(|&(&hash, _)| text.is_val_at_random(hash)).map(|(_, copies)| copies.bytes);
        text.by_chance_bytes - alone - copied.sum::<u64>()
    }

    /// Chooses groups in the order of their hashes while they fit into the fraction, beside the
    /// `others` bytes of the random split. At least one group is left for training.
    fn choose_groups(&self, groups: &BTreeMap<u64, Group>, others: u64) -> Chosen {
        let text = self.text;
        let mut chosen = Chosen {
            groups: BTreeSet::new(),
            random_share: text.val_fraction,
            bytes: others,
            missing: (text.val_fraction * text.bytes as f64 - others as f64).max(0.0),
            // At most half of the distinct text: the rest is repetition, from which little can be
            // learnt.
            room: (0.5 * (text.bytes - self.copied_bytes) as f64 - others as f64).max(0.0),
        };
        for (&hash, &Group { bytes, distinct_bytes }) in groups {
            let fits = bytes as f64 <= chosen.missing && distinct_bytes as f64 <= chosen.room;
            if fits && chosen.groups.len() + 1 < groups.len() {
                chosen.missing -= bytes as f64;
                chosen.room -= distinct_bytes as f64;
                chosen.bytes += bytes;
                chosen.groups.insert(hash);
            }
        }
        chosen
    }

    /// Raises the random split's fraction of the other documents, to at most a half, so that they
    /// make up the missing bytes.
    fn raise_random_share(&self, chosen: &mut Chosen, groups: &BTreeMap<u64, Group>, others: u64) {
        let all = self.text.bytes - groups.values().map(|group| group.bytes).sum::<u64>();
        let more = chosen.missing.min(chosen.room).min(0.5 * all as f64 - others as f64).max(0.0);
        if more > 0.0 {
            chosen.random_share = (others as f64 + more) / all as f64;
            chosen.missing -= more;
            chosen.bytes += more as u64;
        }
    }

    /// For each document, whether it validates: chosen documents, and of the others those that the
    /// random split takes at this fraction.
    fn sides(&self, Pool { candidates, copies, .. }: &Pool, Chosen { groups, random_share, .. }: &Chosen) -> BitVec {
        let text = self.text;
        // It is raised only if every document has a hash.
        let is_raised = *random_share > text.val_fraction;
        let raised = is_raised.then(|| random_sides(*random_share, &text.hashes, &text.near));
        let by_chance = raised.as_ref().unwrap_or(&text.by_chance);
        let mut whole = BitVec::default();
        let mut rest = candidates.iter().peekable();
        for number in 0..text.documents {
            let hash = text.hashes.get(number as usize).filter(|&hash| copies.contains_key(hash));
            whole.push(match (rest.next_if(|candidate| candidate.number == number), hash) {
                (Some(candidate), _) => groups.contains(&candidate.hash),
                (None, Some(hash)) => groups.contains(hash),
                (None, None) => by_chance.get(number as usize) == Some(true),
            });
        }
        whole
    }

    /// Where to cut the documents that were not chosen, so that their ends make up the missing
    /// bytes. Near-duplicates are cut only if the others are too short to reach half of the
    /// fraction.
    fn cuts_beside(&self, chosen: &Chosen, candidates: &[Candidate]) -> BTreeMap<u64, u64> {
        let text = self.text;
        if !text.cuts {
            return BTreeMap::new();
        }
        let is_free = |candidate: &&Candidate| !chosen.groups.contains(&candidate.hash);
        let free: Vec<&Candidate> = candidates.iter().filter(is_free).collect();
        let unlike: Vec<&Candidate> = free.iter().copied().filter(|candidate| !candidate.resembles).collect();
        let all_unlike = unlike.len() == free.len();
        let ends = Ends::that_make_up(chosen.missing, unlike);
        let is_enough = chosen.bytes as f64 + ends.bytes >= 0.5 * text.val_fraction * text.bytes as f64;
        if is_enough || all_unlike {
            return ends.cuts;
        }
        // Near-duplicates are cut as well.
        Ends::that_make_up(chosen.missing, free).cuts
    }

    /// The rule in words.
    fn rule(&self, pool: &Pool, random_share: f64, cuts: &BTreeMap<u64, u64>) -> String {
        let (candidates, documents) = (&pool.candidates, pool.documents());
        let [percent, of_others] = [self.text.val_fraction, random_share].map(percent);
        let resembling = candidates.iter().any(|candidate| candidate.resembles);
        let near = if resembling { " and near-duplicates" } else { "" };
        let mut whole = format!(
            "documents in the order of a seeded hash of their content, as long as they fit into {percent}% of the bytes; equal \
             documents{near} together"
        );
        if documents != self.text.documents {
            let longest = if pool.copies.is_empty() { "longest" } else { "longest or most repeated" };
            whole = format!(
                "of the {documents} {longest} {whole}; of the others those whose hash is in the lowest {of_others}% \
                 of its range"
            );
        }
        let Some(cut) = candidates.iter().find(|candidate| cuts.contains_key(&candidate.number)) else { return whole };
        let share = 1.0 - cuts[&cut.number] as f64 / cut.characters as f64;
        let documents = match cuts.len() {
            1 => "the one long document".to_owned(),
            many => format!("each of {many} long documents"),
        };
        let last = 100.0 * share;
        format!("{whole}; and to make up the {percent}%, the last {last:.1}% of the characters of {documents}")
    }
}

/// Approximate number of bytes after the cuts.
fn bytes_after(cuts: &BTreeMap<u64, u64>, candidates: &[Candidate]) -> u64 {
    let end = |candidate: &Candidate| {
        let characters = candidate.characters - cuts.get(&candidate.number)?;
        Some(candidate.bytes as f64 * characters as f64 / candidate.characters as f64)
    };
    candidates.iter().filter_map(end).sum::<f64>() as u64
}

impl Ends {
    /// The same fraction of each document, at most a half, so that they make up `wanted` bytes in
    /// total, or as much of it as halves give. Documents that are too short for a useful end are not
    /// cut.
    fn that_make_up(wanted: f64, mut documents: Vec<&Candidate>) -> Self {
        let share_of = |documents: &[&Candidate]| {
            let bytes: u64 = documents.iter().map(|candidate| candidate.bytes).sum();
            (wanted / bytes as f64).min(0.5)
        };
        let share = share_of(&documents);
        documents.retain(|candidate| share * candidate.characters as f64 >= SHORTEST_END);
        let share = share_of(&documents);
        let cut = |candidate: &&Candidate| (candidate.number, characters_before(candidate.characters, share));
        let bytes = share * documents.iter().map(|candidate| candidate.bytes as f64).sum::<f64>();
        Self { cuts: documents.iter().map(cut).collect(), bytes }
    }
}
