//! How much of a text is new, by n-grams of words (McCoy et al., "How much do language models copy
//! from their training data?", 2021): the share of its n-grams that do not occur in the training
//! text.

use std::{collections::HashMap, ops::Range};

use serde::Serialize;

/// The largest n.
pub const MAX_WORDS: usize = 10;

/// The words of a text: runs of letters, digits and apostrophes, and every other character that is
/// not white space as a word of its own.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    word_places(text).map(|place| &text[place])
}

/// The byte range of each of a text's words.
pub fn word_places(text: &str) -> impl Iterator<Item = Range<usize>> {
    let inside = |character: char| character.is_alphanumeric() || matches!(character, '\'' | '’');
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(|character: char| !character.is_whitespace())?;
        let first = text[start..].chars().next()?;
        let length = match inside(first) {
            true => text[start..].find(|character| !inside(character)).unwrap_or(text.len() - start),
            false => first.len_utf8(),
        };
        at = start + length;
        Some(start..at)
    })
}

/// How many n-grams of one length there are, and how many of them are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Novel {
    /// Number of words, n.
    pub n: usize,
    /// Number of n-grams, counting every occurrence.
    pub ngrams: u64,
    /// Those that do not occur in the training text.
    pub novel: u64,
}

impl Novel {
    /// The share that is new; `None` if there are no n-grams of that length, so that none is copied
    /// either.
    pub fn share(self) -> Option<f64> {
        (self.ngrams > 0).then(|| self.novel as f64 / self.ngrams as f64)
    }
}

/// The n-grams of a few texts as a trie with one word per edge. The training text is streamed past
/// it: it may be of any size, since memory depends only on the texts.
#[derive(Default)]
pub struct Ngrams {
    ids: HashMap<String, u32>,
    branches: HashMap<(u32, u32), u32>,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Default)]
struct Node {
    /// Words from the root.
    depth: usize,
    /// Occurrences in the texts.
    count: u64,
    /// Whether it occurs in the training text.
    seen: bool,
}

impl Ngrams {
    /// The n-grams of `texts`, n from 1 to [`MAX_WORDS`]; none crosses from one text into the
    /// next.
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut this = Self { nodes: vec![Node::default()], ..Self::default() };
        for text in texts {
            let mut ids = Vec::new();
            for word in words(text) {
                let next = this.ids.len() as u32;
                ids.push(*this.ids.entry(word.to_owned()).or_insert(next));
            }
            for place in 0..ids.len() {
                let mut node = 0;
                for (depth, &id) in (1..=MAX_WORDS).zip(&ids[place..]) {
                    let next = this.nodes.len() as u32;
                    node = *this.branches.entry((node, id)).or_insert(next);
                    if node == next {
                        this.nodes.push(Node { depth, ..Node::default() });
                    }
                    this.nodes[node as usize].count += 1;
                }
            }
        }
        this
    }

    /// Reads a document of the training text.
    pub fn read(&mut self, document: &str) {
        let ids: Vec<Option<u32>> = words(document).map(|word| self.ids.get(word).copied()).collect();
        for place in 0..ids.len() {
            let mut node = 0;
            for id in ids[place..].iter().take(MAX_WORDS) {
                // An n-gram that the texts lack is also no prefix of one that they have.
                let Some(&next) = id.and_then(|id| self.branches.get(&(node, id))) else { break };
                node = next;
                self.nodes[node as usize].seen = true;
            }
        }
    }

    /// The counts of new n-grams after all documents read so far, for n from 1 to [`MAX_WORDS`].
    pub fn novel(&self) -> Vec<Novel> {
        let mut all: Vec<Novel> = (1..=MAX_WORDS).map(|n| Novel { n, ngrams: 0, novel: 0 }).collect();
        for node in &self.nodes[1..] {
            let of_length = &mut all[node.depth - 1];
            of_length.ngrams += node.count;
            of_length.novel += if node.seen { 0 } else { node.count };
        }
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_cut_as_described() {
        let cut = |text| words(text).collect::<Vec<_>>();
        assert_eq!(cut("Ay, 'tis so--\n he's Édouard2."), ["Ay", ",", "'tis", "so", "-", "-", "he's", "Édouard2", "."]);
        assert!(cut(" \n").is_empty() && cut("").is_empty());
    }

    #[test]
    fn an_example_by_hand() {
        let mut ngrams = Ngrams::new(["the cat sat", "the dog sat"]);
        ngrams.read("a dog sat");
        ngrams.read("the cat");
        let novel = ngrams.novel();
        assert_eq!(novel[0], Novel { n: 1, ngrams: 6, novel: 0 });
        assert_eq!(novel[1], Novel { n: 2, ngrams: 4, novel: 2 }); // "cat sat" and "the dog"
        assert_eq!(novel[2], Novel { n: 3, ngrams: 2, novel: 2 });
        assert_eq!((novel[1].share(), novel[3].ngrams, novel[3].share()), (Some(0.5), 0, None));
    }

    fn texts() -> impl Strategy<Value = Vec<String>> {
        let word = prop_oneof![Just("a"), Just("b"), Just("c")];
        let text = proptest::collection::vec(word, 0..25).prop_map(|words| words.join(" "));
        proptest::collection::vec(text, 0..4)
    }

    proptest! {
        #[test]
        fn it_counts_what_trying_everything_counts(texts in texts(), documents in texts()) {
            let mut ngrams = Ngrams::new(texts.iter().map(String::as_str));
            documents.iter().for_each(|document| ngrams.read(document));
            for Novel { n, ngrams, novel } in ngrams.novel() {
                let runs = |texts: &[String]| -> Vec<Vec<String>> {
                    let split = texts.iter().map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
                    split.flat_map(|words| words.windows(n).map(<[String]>::to_vec).collect::<Vec<_>>()).collect()
                };
                let (mine, learned) = (runs(&texts), runs(&documents));
                prop_assert_eq!(ngrams, mine.len() as u64);
                prop_assert_eq!(novel, mine.iter().filter(|run| !learned.contains(run)).count() as u64);
            }
        }
    }
}
