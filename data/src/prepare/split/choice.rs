//! Chooses documents one by one where a random split would miss the fraction.

use super::sides::{SHORTEST_END, Split, characters_before};
use super::{Error, SplitBuilder, as_one_group, candidates::Candidate, is_in_lowest_share, percent, repeated::Copies};
use bit_vec::BitVec;
use std::collections::{BTreeMap, BTreeSet};

/// The documents to choose from; all others keep their side of the random split.
struct Choice {
    /// Chosen one by one; in reading order.
    candidates: Vec<Candidate>,
    /// Chosen with all their copies, by hash of their content; disjoint from the candidates.
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

/// The groups chosen to validate as a whole.
struct Chosen {
    /// The groups, by their hashes.
    groups: BTreeSet<u64>,
    /// The fraction of the other documents that the random split holds out.
    random_share: f64,
    /// Bytes of both.
    bytes: u64,
    /// Bytes still missing to the fraction, and bytes of distinct text that may still be chosen.
    missing: f64,
    room: f64,
}

impl Choice {
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

impl SplitBuilder {
    /// Chooses among the candidates and, if that misses the fraction, also among documents with
    /// many copies. `None` if there is nothing to choose from.
    pub(super) fn choose(&mut self, candidates: &[Candidate]) -> Result<Option<Split>, Error> {
        let has_hashes = self.hashes.len() as u64 == self.documents;
        let repeated = std::mem::take(&mut self.repeated);
        // With too many documents, the last ones have no hash.
        let copies = if has_hashes { repeated.copies(&self.hashes) } else { BTreeMap::new() };
        self.copied = copies.values().map(|copies| copies.bytes - copies.bytes_of_one()).sum();
        let choice = Choice { candidates: candidates.to_vec(), copies: BTreeMap::new(), may_exceed: false };
        let mut split = None;
        if !candidates.is_empty() {
            let (chosen, bytes) = self.split_by(&choice)?;
            if self.is_close_to_share(bytes) {
                return Ok(Some(chosen));
            }
            split = Some(chosen);
        }
        let mut wider = self.with_copies(choice.candidates, copies);
        wider.may_exceed = has_hashes && wider.documents() < self.documents;
        if wider.documents() == 0 || wider.documents() == candidates.len() as u64 && !wider.may_exceed {
            return Ok(split);
        }
        Ok(Some(self.split_by(&wider)?.0))
    }

    /// Adds documents with many copies, and their near-duplicates, to the candidates.
    fn with_copies(&self, candidates: Vec<Candidate>, mut copies: BTreeMap<u64, Copies>) -> Choice {
        let mut candidates: BTreeMap<u64, Candidate> =
            candidates.into_iter().map(|candidate| (candidate.number, candidate)).collect();
        for group in &self.near.groups {
            if group.iter().any(|document| copies.contains_key(&document.hash)) {
                candidates.extend(as_one_group(group));
            }
        }
        let candidates: Vec<Candidate> = candidates.into_values().collect();
        for candidate in &candidates {
            copies.remove(&self.hash(candidate));
        }
        Choice { candidates, copies, may_exceed: false }
    }

    /// The resulting split, and how many bytes it holds out.
    fn split_by(&self, choice: &Choice) -> Result<(Split, u64), Error> {
        let all = self.documents;
        let mut hashes =
            choice.candidates.iter().map(|candidate| self.hash(candidate)).chain(choice.copies.keys().copied());
        let first = hashes.next();
        if choice.documents() == all && hashes.all(|hash| Some(hash) == first) {
            return Err(Error::unusable(format!(
                "all {all} documents are equal, so none can be held out for validation; give different ones",
            )));
        }
        let (split, bytes) = self.choose_among(choice);
        if !split.cuts.is_empty() || !split.whole.all() && split.whole.any() {
            return Ok((split, bytes));
        }
        // Only near-duplicates, too short to be cut: choose each of them separately.
        let own = |candidate: &Candidate| Candidate { hash: self.hash(candidate), resembles: false, ..*candidate };
        let candidates = choice.candidates.iter().map(own).collect();
        Ok(self.choose_among(&Choice { candidates, copies: choice.copies.clone(), ..*choice }))
    }

    /// The hash of a candidate's own content.
    fn hash(&self, candidate: &Candidate) -> u64 {
        self.hashes.get(candidate.number as usize).copied().unwrap_or(candidate.hash)
    }

    /// Bytes that the random split holds out among the documents not to be chosen from.
    fn random_bytes_of_others(&self, Choice { candidates, copies, .. }: &Choice) -> u64 {
        let by_chance = |candidate: &&Candidate| self.by_chance.get(candidate.number as usize) == Some(true);
        let alone: u64 = candidates.iter().filter(by_chance).map(|candidate| candidate.bytes).sum();
        let copied = copies.iter().filter(|&(&hash, _)| self.is_val_at_random(hash)).map(|(_, copies)| copies.bytes);
        self.by_chance_bytes - alone - copied.sum::<u64>()
    }

    /// The split after choosing among these documents, and how many bytes it holds out.
    fn choose_among(&self, choice: &Choice) -> (Split, u64) {
        let candidates = &choice.candidates;
        let others = self.random_bytes_of_others(choice);
        let groups = choice.groups();
        let mut chosen = self.choose_groups(&groups, others);
        if choice.may_exceed && !self.is_close_to_share(chosen.bytes) {
            self.raise_random_share(&mut chosen, &groups, others);
        }
        let mut cuts = self.cuts_beside(&chosen, candidates);
        let smallest = groups.iter().min_by_key(|&(_, group)| group.bytes);
        if let (0, Some((&hash, &Group { bytes, .. }))) = (chosen.bytes, smallest)
            && (cuts.is_empty() || self.is_close_to_share(bytes))
        {
            // All groups are larger than the fraction: take the smallest.
            chosen.groups.insert(hash);
            chosen.bytes = bytes;
        }
        if self.is_close_to_share(chosen.bytes) {
            cuts.clear();
        }
        let whole = self.sides(choice, &chosen.groups, chosen.random_share);
        let bytes = chosen.bytes + behind(&cuts, candidates);
        (Split { rule: self.rule(choice, chosen.random_share, &cuts), whole, cuts }, bytes)
    }

    /// Chooses groups in the order of their hashes while they fit into the fraction, beside the
    /// `others` bytes of the random split. At least one group is left for training.
    fn choose_groups(&self, groups: &BTreeMap<u64, Group>, others: u64) -> Chosen {
        let mut chosen = Chosen {
            groups: BTreeSet::new(),
            random_share: self.val_fraction,
            bytes: others,
            missing: (self.val_fraction * self.bytes as f64 - others as f64).max(0.0),
            // At most half of the distinct text: the rest is repetition, from which little can be
            // learnt.
            room: (0.5 * (self.bytes - self.copied) as f64 - others as f64).max(0.0),
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
        let all = self.bytes - groups.values().map(|group| group.bytes).sum::<u64>();
        let more = chosen.missing.min(chosen.room).min(0.5 * all as f64 - others as f64).max(0.0);
        if more > 0.0 {
            chosen.random_share = (others as f64 + more) / all as f64;
            chosen.missing -= more;
            chosen.bytes += more as u64;
        }
    }

    /// For each document, whether it validates: chosen documents, and of the others those that the
    /// random split takes at this fraction.
    fn sides(&self, Choice { candidates, copies, .. }: &Choice, chosen: &BTreeSet<u64>, random_share: f64) -> BitVec {
        let more = (random_share > self.val_fraction).then(|| self.random_sides(random_share));
        let by_chance = more.as_ref().unwrap_or(&self.by_chance);
        let mut whole = BitVec::default();
        let mut rest = candidates.iter().peekable();
        for number in 0..self.documents {
            let hash = self.hashes.get(number as usize).filter(|&hash| copies.contains_key(hash));
            whole.push(match (rest.next_if(|candidate| candidate.number == number), hash) {
                (Some(candidate), _) => chosen.contains(&candidate.hash),
                (None, Some(hash)) => chosen.contains(hash),
                (None, None) => by_chance.get(number as usize) == Some(true),
            });
        }
        whole
    }

    /// The random split at another fraction, near-duplicates following their first. Every document
    /// must have a hash.
    fn random_sides(&self, share: f64) -> BitVec {
        let mut sides = BitVec::default();
        self.hashes.iter().for_each(|&hash| sides.push(is_in_lowest_share(share, hash)));
        for group in &self.near.groups {
            let side = sides.get(group[0].number as usize).unwrap_or_default();
            group.iter().for_each(|document| sides.set(document.number as usize, side));
        }
        sides
    }

    /// Where to cut the documents that were not chosen, so that their ends make up the missing
    /// bytes. Near-duplicates are cut only if the others are too short to reach half of the
    /// fraction.
    fn cuts_beside(&self, chosen: &Chosen, candidates: &[Candidate]) -> BTreeMap<u64, u64> {
        if !self.cuts {
            return BTreeMap::new();
        }
        let is_free = |candidate: &&Candidate| !chosen.groups.contains(&candidate.hash);
        let long: Vec<&Candidate> = candidates.iter().filter(is_free).collect();
        let unlike = long.iter().copied().filter(|candidate| !candidate.resembles).collect();
        let (share, cuts) = ends(chosen.missing, unlike);
        let cut = long.iter().filter(|candidate| cuts.contains_key(&candidate.number));
        let behind = share * cut.map(|candidate| candidate.bytes as f64).sum::<f64>();
        let is_enough = chosen.bytes as f64 + behind >= 0.5 * self.val_fraction * self.bytes as f64;
        if is_enough || long.iter().all(|candidate| !candidate.resembles) { cuts } else { ends(chosen.missing, long).1 }
    }

    fn rule(&self, choice: &Choice, random_share: f64, cuts: &BTreeMap<u64, u64>) -> String {
        let (candidates, documents) = (&choice.candidates, choice.documents());
        let [percent, of_others] = [self.val_fraction, random_share].map(percent);
        let resembling = candidates.iter().any(|candidate| candidate.resembles);
        let near = if resembling { " and near-duplicates" } else { "" };
        let mut whole = format!(
            "documents in the order of a seeded hash of their content, as long as they fit into {percent}% of the bytes; equal \
             documents{near} together"
        );
        if documents != self.documents {
            let longest = if choice.copies.is_empty() { "longest" } else { "longest or most repeated" };
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
fn behind(cuts: &BTreeMap<u64, u64>, candidates: &[Candidate]) -> u64 {
    let end = |candidate: &Candidate| {
        let characters = candidate.characters - cuts.get(&candidate.number)?;
        Some(candidate.bytes as f64 * characters as f64 / candidate.characters as f64)
    };
    candidates.iter().filter_map(end).sum::<f64>() as u64
}

/// The fraction, at most a half, of each long document that makes up `wanted` bytes in total, and
/// the resulting cuts.
fn ends(wanted: f64, mut documents: Vec<&Candidate>) -> (f64, BTreeMap<u64, u64>) {
    let share_of = |documents: &[&Candidate]| {
        let bytes: u64 = documents.iter().map(|candidate| candidate.bytes).sum();
        (wanted / bytes as f64).min(0.5)
    };
    let share = share_of(&documents);
    documents.retain(|candidate| share * candidate.characters as f64 >= SHORTEST_END);
    let share = share_of(&documents);
    let cut = |candidate: &&Candidate| (candidate.number, characters_before(candidate.characters, share));
    (share, documents.iter().map(cut).collect())
}
