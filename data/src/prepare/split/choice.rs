//! A choice among documents one by one, where chance would miss the share.

use super::{Error, SplitBuilder, candidates::Candidate, sides::SHORTEST_END, sides::Split};
use bit_vec::BitVec;
use std::collections::{BTreeMap, BTreeSet};

impl SplitBuilder {
    /// Chooses among the candidates; the other documents, where there are more, stay where chance
    /// has put them.
    pub(super) fn choose(&self, candidates: &[Candidate]) -> Result<Split, Error> {
        let all = self.documents;
        let first = candidates.first().map(|candidate| self.hash(candidate));
        if candidates.len() as u64 == all && candidates.iter().all(|candidate| Some(self.hash(candidate)) == first) {
            return Err(Error::unusable(format!(
                "all {all} documents are the same text, which cannot both teach and validate; give different ones",
            )));
        }
        let split = self.choose_among(candidates);
        if !split.cuts.is_empty() || !split.whole.all() && split.whole.any() {
            return Ok(split);
        }
        // Near-duplicates and nothing else, too short to be cut: each by itself then.
        let own = |candidate: &Candidate| Candidate { hash: self.hash(candidate), resembles: false, ..*candidate };
        Ok(self.choose_among(&candidates.iter().map(own).collect::<Vec<_>>()))
    }

    /// The hash of a candidate's own content.
    fn hash(&self, candidate: &Candidate) -> u64 {
        self.hashes.get(candidate.number as usize).copied().unwrap_or(candidate.hash)
    }

    fn choose_among(&self, candidates: &[Candidate]) -> Split {
        let by_chance = |candidate: &&Candidate| self.by_chance.get(candidate.number as usize) == Some(true);
        let chance_among_them: u64 = candidates.iter().filter(by_chance).map(|candidate| candidate.bytes).sum();
        let others = self.by_chance_bytes - chance_among_them;
        // The bytes of all documents with a hash: equal ones stay together.
        let mut groups: BTreeMap<u64, u64> = BTreeMap::new();
        for candidate in candidates {
            *groups.entry(candidate.hash).or_default() += candidate.bytes;
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
        let mut cuts = self.cuts_for(left, chosen_bytes, candidates, &chosen);
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
        let mut rest = candidates.iter().peekable();
        for number in 0..self.documents {
            whole.push(match rest.next_if(|candidate| candidate.number == number) {
                Some(candidate) => chosen.contains(&candidate.hash),
                None => self.by_chance.get(number as usize) == Some(true),
            });
        }
        Split { rule: self.rule(candidates, &cuts), whole, cuts }
    }

    /// Where to cut the documents that were not chosen, so that their ends make up `wanted` bytes
    /// beside the `chosen_bytes`. Near-duplicates are cut only where the others are too short to
    /// bring half of the share together.
    fn cuts_for(
        &self,
        wanted: f64,
        chosen_bytes: u64,
        candidates: &[Candidate],
        chosen: &BTreeSet<u64>,
    ) -> BTreeMap<u64, u64> {
        if !self.cuts {
            return BTreeMap::new();
        }
        let long: Vec<&Candidate> = candidates.iter().filter(|candidate| !chosen.contains(&candidate.hash)).collect();
        let unlike = long.iter().copied().filter(|candidate| !candidate.resembles).collect();
        let (share, cuts) = ends(wanted, unlike);
        let cut = long.iter().filter(|candidate| cuts.contains_key(&candidate.number));
        let behind = share * cut.map(|candidate| candidate.bytes as f64).sum::<f64>();
        let is_enough = chosen_bytes as f64 + behind >= 0.5 * self.val_fraction * self.bytes as f64;
        if is_enough || long.iter().all(|candidate| !candidate.resembles) { cuts } else { ends(wanted, long).1 }
    }

    fn rule(&self, candidates: &[Candidate], cuts: &BTreeMap<u64, u64>) -> String {
        let percent = self.percent();
        let resembling = candidates.iter().any(|candidate| candidate.resembles);
        let near = if resembling { " and near-duplicates" } else { "" };
        let mut whole = format!(
            "documents in the order of a seeded hash of their content, as long as they fit into {percent}% of the bytes; equal \
             documents{near} together"
        );
        if candidates.len() as u64 != self.documents {
            whole = format!(
                "of the {} longest {whole}; of the others those whose hash is in the lowest {percent}% of its range",
                candidates.len()
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
    (share, documents.iter().map(|candidate| (candidate.number, candidate.characters_before(share))).collect())
}
