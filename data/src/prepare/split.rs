//! Decides which text validates. Equal documents are never on both sides. Near-duplicates
//! ([`crate::near_duplicates`]) are only where too little else could validate: then they are cut,
//! all at the same fraction, or, if too short for that, put on different sides.
//!
//! The first rule that applies decides ([`SplitBuilder::finish`]). A split is *close* if it holds
//! out half to one and a half times the requested fraction of the bytes.
//!
//! | text | what validates | file |
//! |---|---|---|
//! | a single document | its end, as nanoGPT cuts it | here |
//! | several documents, collected by [`SplitBuilder::of_the_last`] | the end of each run: of all mails by date, of each chat, of each other file with several documents, of the other files together | `last.rs` |
//! | more than 1000 documents, and the random split is close | documents by a seeded hash | `random.rs` |
//! | other text | of the longest documents those chosen one by one, of the others by hash | `choice.rs` |
//! | other text, if that is not close | the same; also documents with many copies, or all documents if there are at most 16,384 different ones | `choice.rs` |
//! | other text with nothing to choose from: many documents of one length, no copies | documents by a seeded hash, close or not | `random.rs` |
//!
//! Where whole documents cannot come close, as in a folder of one long text and two notes,
//! `choice.rs` takes the rest from the ends of long documents: each is cut at the same fraction of
//! its characters; the part before the cut is for training, the part after it for validation. If
//! too little else could validate, as in a folder of drafts of one text, near-duplicates are cut,
//! too. `choice.rs` lets at most half of the distinct text validate as whole documents that fit,
//! however much repeated text there is.
//!
//! `builder.rs` collects the documents, `candidates.rs` the longest and `repeated.rs` those with many
//! copies. The result is in `sides.rs`.

mod bits;
mod builder;
mod candidates;
mod choice;
mod last;
mod random;
mod repeated;
mod sides;

pub use builder::SplitBuilder;
pub use candidates::Candidate;
pub use sides::{Side, Split, is_close_to_share, percent};

use super::{duplicates::Duplicates, duplicates::NearDuplicateCounts, error::Error};
use bit_vec::BitVec;
use candidates::FEW;
use choice::choose;
use random::follow_first;
use serde::{Deserialize, Serialize};
use sides::characters_before;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::Xxh3Default;

/// The hash of a document's content, computed incrementally, that decides its side.
pub struct ContentHash {
    /// The state after hashing only the seed.
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

    /// Returns the hash of the document and starts the next one.
    pub fn finish(&mut self) -> u64 {
        std::mem::replace(&mut self.hash, self.start.clone()).digest()
    }
}

/// Which documents may validate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldOut {
    /// Any, by a seeded hash of their content.
    #[default]
    Any,
    /// The most recent, for text in chronological order such as mails and chats.
    Last,
}

impl SplitBuilder {
    /// Decides the split.
    ///
    /// # Errors
    /// When nothing is left for one of the sides.
    pub fn finish(mut self) -> Result<(Split, Duplicates), Error> {
        let documents = self.documents;
        if documents == 0 {
            return Err(Error::unusable("the text is empty; give a file with text"));
        }
        let growth = follow_first(&mut self.by_chance, &self.near);
        let by_chance_bytes = self.by_chance_bytes.checked_add_signed(growth);
        self.by_chance_bytes = by_chance_bytes.expect("only documents that the random split holds leave it");
        let split = self.decide()?;
        let val = split.whole.count_ones();
        if val == 0 && split.cuts.is_empty() || val == documents {
            return Err(Error::OneSided { val, documents });
        }
        let near = NearDuplicateCounts::count(&self.near, &split);
        let duplicates = Duplicates::count(self.hashes, &split, near);
        Ok((split, duplicates))
    }

    /// The split by the first rule of the table above that applies.
    fn decide(&mut self) -> Result<Split, Error> {
        let candidates = std::mem::take(&mut self.longest).candidates(&self.near);
        if self.documents == 1
            && let [only] = &candidates[..]
        {
            return self.cut_in_two(only);
        }
        if let Some(order) = &self.order {
            return order.hold_out(self.val_fraction, &self.hashes, &self.near);
        }
        if self.documents > FEW as u64 && self.is_close_to_share(self.by_chance_bytes) {
            return Ok(self.random_split());
        }
        Ok(choose(self, candidates)?.unwrap_or_else(|| self.random_split()))
    }

    fn random_split(&mut self) -> Split {
        let percent = percent(self.val_fraction);
        let mut rule = format!("documents whose content has a seeded hash in the lowest {percent}% of its range");
        if !self.near.groups.is_empty() {
            rule += "; near-duplicates follow the first of their group";
        }
        Split { rule, whole: std::mem::take(&mut self.by_chance), cuts: BTreeMap::new() }
    }

    fn cut_in_two(&self, only: &Candidate) -> Result<Split, Error> {
        if only.characters < 2 {
            return Err(Error::unusable("the text is one character long; give more"));
        }
        Ok(Split {
            rule: format!("the last {}% of the characters of the only document", percent(self.val_fraction)),
            whole: BitVec::default(),
            cuts: BTreeMap::from([(only.number, characters_before(only.characters, self.val_fraction))]),
        })
    }
}

#[cfg(test)]
mod tests;
