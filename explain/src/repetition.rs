//! How much a text repeats itself, in tokens.

use std::collections::HashSet;

use ember_decoding::loops::ending_loop;
use serde::Serialize;

/// A text that ends in a repeated unit is in a loop if the repetition is at least this long, which
/// is not much, since explained texts are short, ...
const LOOP_TOKENS: usize = 8;

/// ... and contains the unit at least this often.
const LOOP_TIMES: usize = 3;

/// How much a text repeats itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Repetition {
    /// The share of distinct pairs among all pairs of neighbouring tokens ([Li et al.
    /// 2016](https://arxiv.org/abs/1510.03055), section 5.1); `None` for a text without pairs.
    distinct_2: Option<f64>,
    /// The same for three tokens in a row.
    distinct_3: Option<f64>,
    /// Length in tokens of the longest passage that occurs twice; the two may overlap.
    longest_repeat: usize,
    /// Whether it ends in a repeated unit ([Holtzman et al.
    /// 2020](https://arxiv.org/abs/1904.09751), figure 4): at least three times, over at least
    /// eight tokens.
    loops: bool,
}

impl Repetition {
    /// Measures a text.
    pub(super) fn of(ids: &[u32]) -> Self {
        Self {
            distinct_2: distinct(ids, 2),
            distinct_3: distinct(ids, 3),
            longest_repeat: longest_repeat(ids),
            loops: ending_loop(ids, LOOP_TIMES, LOOP_TOKENS).is_some(),
        }
    }
}

/// The share of distinct passages among those of `n` tokens.
fn distinct(ids: &[u32], n: usize) -> Option<f64> {
    let all = ids.windows(n);
    let count = all.len();
    (count > 0).then(|| all.collect::<HashSet<_>>().len() as f64 / count as f64)
}

/// A repeated passage of n + 1 tokens contains a repeated one of n: bisect for the longest.
fn longest_repeat(ids: &[u32]) -> usize {
    let occurs_twice = |n: usize| {
        let mut seen = HashSet::new();
        ids.windows(n).any(|passage| !seen.insert(passage))
    };
    let (mut longest, mut too_long) = (0, ids.len().max(1));
    while longest + 1 < too_long {
        let middle = longest.midpoint(too_long);
        if occurs_twice(middle) { longest = middle } else { too_long = middle }
    }
    longest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        // Pairs: 12 23 31 12 24; triples: 123 231 312 124.
        let text = Repetition::of(&[1, 2, 3, 1, 2, 4]);
        assert_eq!(text, Repetition { distinct_2: Some(0.8), distinct_3: Some(1.0), longest_repeat: 2, loops: false });
        let nothing = Repetition { distinct_2: None, distinct_3: None, longest_repeat: 0, loops: false };
        assert_eq!(Repetition::of(&[]), nothing);
        assert_eq!(Repetition::of(&[7]), nothing);
    }

    #[test]
    fn a_loop_is_three_times_the_same_and_eight_tokens() {
        let loops = |ids: &[u32]| Repetition::of(ids).loops;
        assert!(loops(&[5; 8]) && !loops(&[5; 7]));
        assert!(loops(&[9, 1, 2, 3, 1, 2, 3, 1, 2, 3]));
        assert!(!loops(&[9, 1, 2, 3, 1, 2, 3, 1, 2, 4]), "it got out");
        assert!(!loops(&[1, 2, 3, 4, 1, 2, 3, 4]), "twice is no loop");
        assert!(loops(&[1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]), "the last time need not be whole");
        assert_eq!(longest_repeat(&[5; 8]), 7);
    }

    proptest! {
        #[test]
        fn the_longest_repeat_is_what_looking_everywhere_finds(ids in prop::collection::vec(0..3_u32, 0..30)) {
            let mut longest = 0;
            for (a, b) in (0..ids.len()).flat_map(|b| (0..b).map(move |a| (a, b))) {
                longest = longest.max(ids[a..].iter().zip(&ids[b..]).take_while(|(x, y)| x == y).count());
            }
            prop_assert_eq!(longest_repeat(&ids), longest);
        }
    }
}
