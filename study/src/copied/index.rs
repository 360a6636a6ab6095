//! A suffix array: the offsets of a text's suffixes in sorted order, so that any stretch is found
//! by bisection.
//!
//! In sorted order, all occurrences of a stretch are adjacent (Manber and Myers, "Suffix arrays: a
//! new method for on-line string searches", 1993). The sorting itself is divsufsort's.

use crate::error::{Error, Result};

/// A text in which any stretch can be looked up; takes 5 bytes of memory per byte of text.
pub struct Index {
    /// The text.
    pub text: Vec<u8>,
    /// The offsets of all suffixes of `text`, sorted by suffix.
    suffixes: Vec<i32>,
}

impl Index {
    /// Sorts the suffixes of a text of less than 2 GiB.
    ///
    /// # Errors
    /// When the text is larger.
    pub fn new(text: Vec<u8>) -> Result<Self> {
        if i32::try_from(text.len()).is_err() {
            return Err(Error::TooLong(text.len()));
        }
        let mut suffixes = vec![0; text.len()];
        divsufsort::sort_in_place(&text, &mut suffixes);
        Ok(Self { text, suffixes })
    }

    /// Bytes of memory of text and suffixes.
    pub fn memory_bytes(&self) -> u64 {
        (self.text.len() + self.suffixes.len() * size_of::<i32>()) as u64
    }

    /// Whether `wanted` occurs; the empty string always does.
    pub fn contains(&self, wanted: &[u8]) -> bool {
        wanted.is_empty() || self.suffixes.get(self.lower(wanted)).is_some_and(|&at| self.from(at).starts_with(wanted))
    }

    /// The length in bytes of the longest prefix of `wanted` that occurs.
    pub fn longest_match(&self, wanted: &[u8]) -> usize {
        // The suffix with the longest common prefix is right before or after the position at which
        // `wanted` would be sorted in.
        let place = self.lower(wanted);
        let around = &self.suffixes[place.saturating_sub(1)..self.suffixes.len().min(place + 1)];
        let shared = |&at: &i32| self.from(at).iter().zip(wanted).take_while(|(a, b)| a == b).count();
        around.iter().map(shared).max().unwrap_or(0)
    }

    /// The offset of every occurrence of `wanted`, in no order.
    pub fn places<'a>(&'a self, wanted: &'a [u8]) -> impl ExactSizeIterator<Item = usize> + 'a {
        let first = &self.suffixes[self.lower(wanted)..];
        let count = first.partition_point(|&at| self.from(at).starts_with(wanted));
        first[..count].iter().map(|&at| at as usize)
    }

    /// Number of suffixes that sort before `wanted`.
    fn lower(&self, wanted: &[u8]) -> usize {
        self.suffixes.partition_point(|&at| self.from(at) < wanted)
    }

    fn from(&self, at: i32) -> &[u8] {
        &self.text[at as usize..]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_example_by_hand() {
        let index = Index::new(b"banana".to_vec()).unwrap();
        // a, ana, anana, banana, na, nana
        assert_eq!(index.suffixes, [5, 3, 1, 0, 4, 2]);
        assert_eq!(index.places(b"an").collect::<Vec<_>>(), [3, 1]);
        assert!(index.contains(b"nan") && !index.contains(b"nab"));
        assert_eq!(index.longest_match(b"nab"), 2);
        assert_eq!(index.longest_match(b"x"), 0);
    }

    fn small() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(b'a'..b'd', 0..60)
    }

    proptest! {
        #[test]
        fn it_finds_what_looking_everywhere_finds(text in small(), wanted in small()) {
            let index = Index::new(text.clone()).unwrap();
            let found = |length: usize| text.windows(length.max(1)).any(|window| window == &wanted[..length]) || length == 0;
            let longest = (0..=wanted.len()).rev().find(|&length| found(length)).unwrap();
            prop_assert_eq!(index.longest_match(&wanted), longest);
            for length in 1..=wanted.len() {
                prop_assert_eq!(index.contains(&wanted[..length]), found(length));
                let mut places: Vec<usize> = index.places(&wanted[..length]).collect();
                places.sort_unstable();
                let expected: Vec<usize> = (0..text.len()).filter(|&at| text[at..].starts_with(&wanted[..length])).collect();
                prop_assert_eq!(places, expected);
            }
        }
    }
}
