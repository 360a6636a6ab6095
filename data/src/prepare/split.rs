//! Which text validates: never the same document on both sides.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

/// A side of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Train,
    Val,
}

/// Up to so many documents are chosen so that their bytes make the wanted share; of more, chance does well enough.
const FEW: usize = 1000;

/// Documents whose hashes are kept, to count duplicates: 8 bytes each.
const MOST_HASHES: usize = 1 << 24;

/// The hash of a document's content that decides its side, taken piece by piece.
pub struct ContentHash {
    seed: u64,
    hash: Xxh3Default,
}

impl ContentHash {
    pub fn new(seed: u64) -> Self {
        let mut this = Self { seed, hash: Xxh3Default::new() };
        this.restart();
        this
    }

    pub fn update(&mut self, text: &str) {
        self.hash.update(text.as_bytes());
    }

    /// The hash of the document so far; the next document begins.
    pub fn finish(&mut self) -> u64 {
        let hash = self.hash.digest();
        self.restart();
        hash
    }

    fn restart(&mut self) {
        self.hash.reset();
        self.hash.update(&self.seed.to_le_bytes());
    }
}

/// Collects documents as the text is read for the first time.
pub struct SplitBuilder {
    val_fraction: f64,
    documents: u64,
    characters: u64,
    hashes: Vec<u64>,
    few_bytes: Vec<u64>,
    by_chance: Bits,
}

impl SplitBuilder {
    pub fn new(val_fraction: f64) -> Self {
        Self {
            val_fraction,
            documents: 0,
            characters: 0,
            hashes: Vec::new(),
            few_bytes: Vec::new(),
            by_chance: Bits::default(),
        }
    }

    /// Adds a document by the hash of its content.
    pub fn push(&mut self, hash: u64, bytes: u64, characters: u64) {
        self.documents += 1;
        self.characters = characters;
        self.by_chance.push((hash as f64) < self.val_fraction * 2f64.powi(64));
        if self.hashes.len() < MOST_HASHES {
            self.hashes.push(hash);
        }
        if self.few_bytes.len() <= FEW {
            self.few_bytes.push(bytes);
        }
    }

    /// Decides. Errors when nothing is left for one of the sides.
    pub fn finish(mut self) -> Result<(Split, Duplicates)> {
        ensure!(self.documents > 0, "the text is empty; give some");
        let percent = (self.val_fraction * 1000.0).round() / 10.0;
        let split = if self.documents == 1 {
            ensure!(self.characters >= 2, "the text is one character long; give more");
            let train_characters = (self.characters as f64 * (1.0 - self.val_fraction)) as u64;
            Split {
                rule: format!("the last {percent}% of the characters of the only document"),
                kind: Kind::WithinDocument { train_characters: train_characters.clamp(1, self.characters - 1) },
            }
        } else if self.documents <= FEW as u64 {
            let sides = self.choose_few()?;
            let rule = format!(
                "documents in the order of a seeded hash of their content, as long as they fit into {percent}% of the bytes; equal \
                 documents together"
            );
            Split { rule, kind: Kind::Documents(sides) }
        } else {
            let rule = format!("documents whose content has a seeded hash in the lowest {percent}% of its range");
            Split { rule, kind: Kind::Documents(std::mem::take(&mut self.by_chance)) }
        };
        if let Kind::Documents(sides) = &split.kind {
            let val = sides.ones();
            ensure!(
                0 < val && val < self.documents,
                "{val} of {} documents fell to validation; give another --seed or more different documents",
                self.documents
            );
        }
        let duplicates = Duplicates::count(self.hashes, &split, self.documents);
        Ok((split, duplicates))
    }

    fn choose_few(&self) -> Result<Bits> {
        let mut groups: Vec<(u64, u64)> = Vec::new(); // hash and bytes of all documents with it
        let mut order: Vec<usize> = (0..self.hashes.len()).collect();
        order.sort_by_key(|&document| self.hashes[document]);
        for document in order {
            let (hash, bytes) = (self.hashes[document], self.few_bytes[document]);
            match groups.last_mut() {
                Some(last) if last.0 == hash => last.1 += bytes,
                _ => groups.push((hash, bytes)),
            }
        }
        ensure!(
            groups.len() > 1,
            "all {} documents are the same text, which cannot both teach and validate; give different ones",
            self.documents
        );
        let mut left = self.val_fraction * groups.iter().map(|group| group.1 as f64).sum::<f64>();
        let mut chosen = Vec::new();
        for (hash, bytes) in &groups {
            if *bytes as f64 <= left && chosen.len() + 1 < groups.len() {
                left -= *bytes as f64;
                chosen.push(*hash);
            }
        }
        if chosen.is_empty() {
            // All are larger than the share: the smallest then.
            chosen.extend(groups.iter().min_by_key(|group| group.1).map(|group| group.0));
        }
        let mut sides = Bits::default();
        self.hashes.iter().for_each(|hash| sides.push(chosen.binary_search(hash).is_ok()));
        Ok(sides)
    }
}

/// Which text validates.
pub struct Split {
    /// The rule in words: what validates.
    pub rule: String,
    pub kind: Kind,
}

pub enum Kind {
    /// The only document is cut after so many characters.
    WithinDocument { train_characters: u64 },
    /// Set for the documents that validate.
    Documents(Bits),
}

impl Split {
    /// The side on which a document (its number in reading order) begins.
    pub fn side(&self, document: u64) -> Side {
        match &self.kind {
            Kind::Documents(sides) if sides.get(document) => Side::Val,
            _ => Side::Train,
        }
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

/// A list of bits.
#[derive(Default)]
pub struct Bits {
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(64) {
            self.words.push(0);
        }
        if let Some(word) = self.words.last_mut() {
            *word |= u64::from(bit) << (self.len % 64);
        }
        self.len += 1;
    }

    /// Bit number `i`; unset beyond the end.
    fn get(&self, i: u64) -> bool {
        self.words.get((i / 64) as usize).is_some_and(|word| word >> (i % 64) & 1 == 1)
    }

    fn ones(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn split(texts: &[String], val_fraction: f64, seed: u64) -> Result<(Split, Duplicates)> {
        let mut builder = SplitBuilder::new(val_fraction);
        let mut hash = ContentHash::new(seed);
        for text in texts {
            hash.update(text);
            builder.push(hash.finish(), text.len() as u64, text.chars().count() as u64);
        }
        builder.finish()
    }

    #[test]
    fn the_only_document_is_cut_as_nanogpt_cuts_it() {
        let mut builder = SplitBuilder::new(0.1);
        builder.push(1, 1_115_394, 1_115_394);
        // int(0.9 * 1115394), the length of nanoGPT's train.bin for tiny Shakespeare.
        assert!(matches!(builder.finish().unwrap().0.kind, Kind::WithinDocument { train_characters: 1_003_854 }));
    }

    #[test]
    fn few_documents_fill_the_share_in_bytes() {
        let texts: Vec<String> = (0..40).map(|i| format!("{i} ").repeat(50 + i)).collect();
        let (split, _) = split(&texts, 0.25, 7).unwrap();
        let all: usize = texts.iter().map(String::len).sum();
        let val: usize = (0..40).filter(|&i| split.side(i) == Side::Val).map(|i| texts[i as usize].len()).sum();
        let share = val as f64 / all as f64;
        assert!((0.22..=0.25).contains(&share), "{share}");
    }

    #[test]
    fn of_two_large_documents_the_smaller_validates() {
        let (split, _) = split(&["aaaa".to_owned(), "bbb".to_owned()], 0.1, 0).unwrap();
        assert_eq!((split.side(0), split.side(1)), (Side::Train, Side::Val));
    }

    #[test]
    fn copies_of_one_document_are_refused() {
        let error = split(&["same".to_owned(), "same".to_owned()], 0.1, 0).err().unwrap().to_string();
        assert!(error.contains("all 2 documents are the same text"), "{error}");
        assert!(split(&[], 0.1, 0).is_err());
    }

    #[test]
    fn many_documents_are_split_by_chance_and_the_seed_decides() {
        let texts: Vec<String> = (0..20_000).map(|i| format!("document {i}")).collect();
        let chosen = |seed| {
            let (split, _) = split(&texts, 0.1, seed).unwrap();
            (0..20_000u64).filter(|&i| split.side(i) == Side::Val).collect::<Vec<_>>()
        };
        // 2,000 expected with a standard deviation of 42.
        assert!((1790..2210).contains(&chosen(1).len()));
        assert_eq!(chosen(1), chosen(1));
        assert_ne!(chosen(1), chosen(2));
    }

    #[test]
    fn a_leak_would_be_seen() {
        let mut sides = Bits::default();
        [false, true, true, false].into_iter().for_each(|side| sides.push(side));
        let split = Split { rule: String::new(), kind: Kind::Documents(sides) };
        let duplicates = Duplicates::count(vec![10, 10, 20, 30], &split, 4);
        assert_eq!(duplicates, Duplicates { examined: 4, exact: 1, on_both_sides: 1 });
    }

    proptest! {
        #[test]
        fn equal_documents_never_stand_on_both_sides(
            ids in proptest::collection::vec(0u8..30, 2..3000), seed: u64, val_fraction in 0.05..0.5f64,
        ) {
            let texts: Vec<String> = ids.iter().map(|id| format!("document {id}")).collect();
            if let Ok((split, duplicates)) = split(&texts, val_fraction, seed) {
                let side = |id: u8| ids.iter().position(|&other| other == id).map(|i| split.side(i as u64));
                for (i, &id) in ids.iter().enumerate() {
                    prop_assert_eq!(Some(split.side(i as u64)), side(id));
                }
                let distinct = ids.iter().collect::<std::collections::BTreeSet<_>>().len();
                prop_assert_eq!(duplicates.exact, (ids.len() - distinct) as u64);
                prop_assert_eq!(duplicates.on_both_sides, 0);
            }
        }
    }
}
