//! A choice among documents one by one, where chance would miss the share.

use super::sides::{SHORTEST_END, Split, characters_before};
use super::{Error, SplitBuilder, candidates::Candidate, is_in_the_lowest, percent, repeated::Copies, together};
use bit_vec::BitVec;
use std::collections::{BTreeMap, BTreeSet};

/// What is chosen among; the other documents, where there are more, stay where chance has put them.
struct Choice {
    /// One by one, in the order in which they were read.
    candidates: Vec<Candidate>,
    /// With all their copies, by the hash of their content; none is among the candidates.
    copies: BTreeMap<u64, Copies>,
    /// Whether chance may take more of the other documents than the share, where that is missed.
    takes_more: bool,
}

/// Documents that stay together.
#[derive(Default)]
struct Group {
    bytes: u64,
    /// Without copies.
    different: u64,
}

/// What was chosen to validate as a whole.
struct Chosen {
    /// The groups, by their hashes.
    groups: BTreeSet<u64>,
    /// The share of the other documents that chance takes.
    chance: f64,
    /// Bytes of both.
    bytes: u64,
    /// Bytes that are missing to the share, and bytes of different text that may be chosen still.
    left: f64,
    room: f64,
}

impl Choice {
    fn documents(&self) -> u64 {
        self.candidates.len() as u64 + self.copies.values().map(|copies| copies.documents).sum::<u64>()
    }

    /// All documents with a hash: equal ones stay together.
    fn groups(&self) -> BTreeMap<u64, Group> {
        let group = |copies: &Copies| Group { bytes: copies.bytes, different: copies.bytes_of_one() };
        let mut groups: BTreeMap<u64, Group> =
            self.copies.iter().map(|(&hash, copies)| (hash, group(copies))).collect();
        for candidate in &self.candidates {
            let group = groups.entry(candidate.hash).or_default();
            if group.bytes == 0 || candidate.resembles {
                group.different += candidate.bytes;
            }
            group.bytes += candidate.bytes;
        }
        groups
    }
}

impl SplitBuilder {
    /// Chooses among the candidates, and where that misses the share, among documents of which there
    /// are many copies as well. `None` where there is nothing to choose among.
    pub(super) fn choose(&mut self, candidates: &[Candidate]) -> Result<Option<Split>, Error> {
        let has_hashes = self.hashes.len() as u64 == self.documents;
        let repeated = std::mem::take(&mut self.repeated);
        // Of too many documents the last have no hash.
        let copies = if has_hashes { repeated.copies(&self.hashes) } else { BTreeMap::new() };
        self.copied = copies.values().map(|copies| copies.bytes - copies.bytes_of_one()).sum();
        let choice = Choice { candidates: candidates.to_vec(), copies: BTreeMap::new(), takes_more: false };
        let mut split = None;
        if !candidates.is_empty() {
            let (chosen, bytes) = self.split_by(&choice)?;
            if self.is_about_the_share(bytes) {
                return Ok(Some(chosen));
            }
            split = Some(chosen);
        }
        let mut wider = self.with_copies(choice.candidates, copies);
        wider.takes_more = has_hashes && wider.documents() < self.documents;
        if wider.documents() == 0 || wider.documents() == candidates.len() as u64 && !wider.takes_more {
            return Ok(split);
        }
        Ok(Some(self.split_by(&wider)?.0))
    }

    /// Beside the candidates documents of which there are many copies, and their near-duplicates.
    fn with_copies(&self, candidates: Vec<Candidate>, mut copies: BTreeMap<u64, Copies>) -> Choice {
        let mut candidates: BTreeMap<u64, Candidate> =
            candidates.into_iter().map(|candidate| (candidate.number, candidate)).collect();
        for group in &self.near.groups {
            if group.iter().any(|document| copies.contains_key(&document.hash)) {
                candidates.extend(together(group));
            }
        }
        let candidates: Vec<Candidate> = candidates.into_values().collect();
        for candidate in &candidates {
            copies.remove(&self.hash(candidate));
        }
        Choice { candidates, copies, takes_more: false }
    }

    /// The split that is chosen, and how many bytes validate by it.
    fn split_by(&self, choice: &Choice) -> Result<(Split, u64), Error> {
        let all = self.documents;
        let mut hashes =
            choice.candidates.iter().map(|candidate| self.hash(candidate)).chain(choice.copies.keys().copied());
        let first = hashes.next();
        if choice.documents() == all && hashes.all(|hash| Some(hash) == first) {
            return Err(Error::unusable(format!(
                "all {all} documents are the same text, which cannot both teach and validate; give different ones",
            )));
        }
        let (split, bytes) = self.choose_among(choice);
        if !split.cuts.is_empty() || !split.whole.all() && split.whole.any() {
            return Ok((split, bytes));
        }
        // Near-duplicates and nothing else, too short to be cut: each by itself then.
        let own = |candidate: &Candidate| Candidate { hash: self.hash(candidate), resembles: false, ..*candidate };
        let candidates = choice.candidates.iter().map(own).collect();
        Ok(self.choose_among(&Choice { candidates, copies: choice.copies.clone(), ..*choice }))
    }

    /// The hash of a candidate's own content.
    fn hash(&self, candidate: &Candidate) -> u64 {
        self.hashes.get(candidate.number as usize).copied().unwrap_or(candidate.hash)
    }

    /// How many bytes chance has validate of the documents that are not chosen among.
    fn others_by_chance(&self, Choice { candidates, copies, .. }: &Choice) -> u64 {
        let by_chance = |candidate: &&Candidate| self.by_chance.get(candidate.number as usize) == Some(true);
        let alone: u64 = candidates.iter().filter(by_chance).map(|candidate| candidate.bytes).sum();
        let copied = copies.iter().filter(|&(&hash, _)| self.is_by_chance(hash)).map(|(_, copies)| copies.bytes);
        self.by_chance_bytes - alone - copied.sum::<u64>()
    }

    /// The split by what is chosen of these documents, and how many bytes validate by it.
    fn choose_among(&self, choice: &Choice) -> (Split, u64) {
        let candidates = &choice.candidates;
        let others = self.others_by_chance(choice);
        let groups = choice.groups();
        let mut chosen = self.choose_groups(&groups, others);
        if choice.takes_more && !self.is_about_the_share(chosen.bytes) {
            self.take_more_by_chance(&mut chosen, &groups, others);
        }
        let mut cuts = self.cuts_beside(&chosen, candidates);
        let smallest = groups.iter().min_by_key(|&(_, group)| group.bytes);
        if let (0, Some((&hash, &Group { bytes, .. }))) = (chosen.bytes, smallest)
            && (cuts.is_empty() || self.is_about_the_share(bytes))
        {
            // All are larger than the share: the smallest then.
            chosen.groups.insert(hash);
            chosen.bytes = bytes;
        }
        if self.is_about_the_share(chosen.bytes) {
            cuts.clear();
        }
        let whole = self.sides(choice, &chosen.groups, chosen.chance);
        let bytes = chosen.bytes + behind(&cuts, candidates);
        (Split { rule: self.rule(choice, chosen.chance, &cuts), whole, cuts }, bytes)
    }

    /// Chooses group after group, in the order of their hashes, where they fit into the share beside the
    /// `others` bytes that chance takes. One group at least is left to teach.
    fn choose_groups(&self, groups: &BTreeMap<u64, Group>, others: u64) -> Chosen {
        let mut chosen = Chosen {
            groups: BTreeSet::new(),
            chance: self.val_fraction,
            bytes: others,
            left: (self.val_fraction * self.bytes as f64 - others as f64).max(0.0),
            // At most a half of what is not said again: an answer given nine times in ten is little to
            // learn from.
            room: (0.5 * (self.bytes - self.copied) as f64 - others as f64).max(0.0),
        };
        for (&hash, &Group { bytes, different }) in groups {
            let fits = bytes as f64 <= chosen.left && different as f64 <= chosen.room;
            if fits && chosen.groups.len() + 1 < groups.len() {
                chosen.left -= bytes as f64;
                chosen.room -= different as f64;
                chosen.bytes += bytes;
                chosen.groups.insert(hash);
            }
        }
        chosen
    }

    /// Has chance take more than the share of the other documents, at most a half, so that they make up
    /// what is missing.
    fn take_more_by_chance(&self, chosen: &mut Chosen, groups: &BTreeMap<u64, Group>, others: u64) {
        let all = self.bytes - groups.values().map(|group| group.bytes).sum::<u64>();
        let more = chosen.left.min(chosen.room).min(0.5 * all as f64 - others as f64).max(0.0);
        if more > 0.0 {
            chosen.chance = (others as f64 + more) / all as f64;
            chosen.left -= more;
            chosen.bytes += more as u64;
        }
    }

    /// Set for the documents that validate: the chosen ones, and of the others those of which chance
    /// takes this share.
    fn sides(&self, Choice { candidates, copies, .. }: &Choice, chosen: &BTreeSet<u64>, chance: f64) -> BitVec {
        let more = (chance > self.val_fraction).then(|| self.by_chance_of(chance));
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

    /// Where chance puts documents that all have a hash, near-duplicates with the first of them, when it
    /// takes another share.
    fn by_chance_of(&self, share: f64) -> BitVec {
        let mut sides = BitVec::default();
        self.hashes.iter().for_each(|&hash| sides.push(is_in_the_lowest(share, hash)));
        for group in &self.near.groups {
            let side = sides.get(group[0].number as usize).unwrap_or_default();
            group.iter().for_each(|document| sides.set(document.number as usize, side));
        }
        sides
    }

    /// Where to cut the documents that were not chosen, so that their ends make up what is missing.
    /// Near-duplicates are cut only where the others are too short to bring half of the share together.
    fn cuts_beside(&self, chosen: &Chosen, candidates: &[Candidate]) -> BTreeMap<u64, u64> {
        if !self.cuts {
            return BTreeMap::new();
        }
        let is_free = |candidate: &&Candidate| !chosen.groups.contains(&candidate.hash);
        let long: Vec<&Candidate> = candidates.iter().filter(is_free).collect();
        let unlike = long.iter().copied().filter(|candidate| !candidate.resembles).collect();
        let (share, cuts) = ends(chosen.left, unlike);
        let cut = long.iter().filter(|candidate| cuts.contains_key(&candidate.number));
        let behind = share * cut.map(|candidate| candidate.bytes as f64).sum::<f64>();
        let is_enough = chosen.bytes as f64 + behind >= 0.5 * self.val_fraction * self.bytes as f64;
        if is_enough || long.iter().all(|candidate| !candidate.resembles) { cuts } else { ends(chosen.left, long).1 }
    }

    fn rule(&self, choice: &Choice, chance: f64, cuts: &BTreeMap<u64, u64>) -> String {
        let (candidates, documents) = (&choice.candidates, choice.documents());
        let [percent, of_others] = [self.val_fraction, chance].map(percent);
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

/// About how many bytes are behind the cuts.
fn behind(cuts: &BTreeMap<u64, u64>, candidates: &[Candidate]) -> u64 {
    let end = |candidate: &Candidate| {
        let characters = candidate.characters - cuts.get(&candidate.number)?;
        Some(candidate.bytes as f64 * characters as f64 / candidate.characters as f64)
    };
    candidates.iter().filter_map(end).sum::<f64>() as u64
}

/// The share of each long document that makes up `wanted` bytes of them, at most a half, and where
/// that cuts them.
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
