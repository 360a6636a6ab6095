//! Texts that end in a loop: the same stretch repeated again and again, a known failure of greedy
//! decoding (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020).

use serde::Serialize;

/// How often a stretch must be repeated at the end.
pub const TIMES: usize = 3;

/// Minimal number of tokens in a loop: a few full stops in a row are none.
pub const MIN_TOKENS: usize = 16;

/// The loop at the end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Loop {
    /// Tokens before the looping stretch first occurs.
    pub onset: usize,
    /// Tokens in the stretch.
    pub period: usize,
}

/// The loop at the end of `ids`: the shortest stretch that is repeated at least [`TIMES`] times up
/// to the last token (the last repetition may be cut short), over at least [`MIN_TOKENS`] tokens.
pub fn ending_loop(ids: &[u32]) -> Option<Loop> {
    (1..=ids.len() / TIMES).find_map(|period| {
        let same = ids.iter().rev().zip(ids[..ids.len() - period].iter().rev()).take_while(|(a, b)| a == b).count();
        let covered = same + period;
        (covered >= MIN_TOKENS.max(TIMES * period)).then(|| Loop { onset: ids.len() - covered, period })
    })
}

/// How many texts of one kind end in a loop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loops {
    /// The kind of text: `real`, `sampled` or `greedy`.
    pub text: &'static str,
    /// Number of texts.
    pub texts: usize,
    /// Number of texts that end in a loop.
    pub loops: usize,
    /// Mean number of tokens before the loop, over the texts that end in one.
    pub mean_onset: Option<f64>,
    /// Mean number of tokens in the looping stretch, over the same texts.
    pub mean_period: Option<f64>,
}

impl Loops {
    /// Counts the loops of `texts`.
    pub fn count<'a>(text: &'static str, texts: impl IntoIterator<Item = &'a [u32]>) -> Self {
        let found: Vec<Option<Loop>> = texts.into_iter().map(ending_loop).collect();
        let loops: Vec<Loop> = found.iter().copied().flatten().collect();
        let mean = |of: fn(&Loop) -> usize| {
            (!loops.is_empty()).then(|| loops.iter().map(of).sum::<usize>() as f64 / loops.len() as f64)
        };
        Self {
            text,
            texts: found.len(),
            loops: loops.len(),
            mean_onset: mean(|found| found.onset),
            mean_period: mean(|found| found.period),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples_by_hand() {
        let text = [&[9, 8, 7][..], &[1, 2, 3, 4, 5].repeat(4), &[1, 2]].concat();
        assert_eq!(ending_loop(&text), Some(Loop { onset: 3, period: 5 }));
        assert_eq!(ending_loop(&text[..text.len() - 8]), None, "17 tokens, less than three times");
        assert_eq!(ending_loop(&[7; 16]), Some(Loop { onset: 0, period: 1 }));
        assert_eq!(ending_loop(&[7; 15]), None);
        assert_eq!(ending_loop(&[&[1; 30][..], &[2]].concat()), None, "it ended");
        assert_eq!(ending_loop(&[]), None);
    }

    #[test]
    fn only_loops_have_an_onset() {
        let (looping, other) = ([&[1, 2][..], &[3; 20]].concat(), vec![1, 2, 3]);
        let counted = Loops::count("greedy", [looping.as_slice(), &other]);
        assert_eq!(
            (counted.texts, counted.loops, counted.mean_onset, counted.mean_period),
            (2, 1, Some(2.0), Some(1.0))
        );
        assert_eq!(Loops::count("real", [other.as_slice()]).mean_onset, None);
    }

    proptest! {
        #[test]
        fn a_loop_is_what_its_definition_says(
            before in proptest::collection::vec(0..3_u32, 0..20),
            stretch in proptest::collection::vec(0..3_u32, 1..8),
            tokens in 0..60_usize,
        ) {
            let text: Vec<u32> = before.iter().chain(stretch.iter().cycle().take(tokens)).copied().collect();
            let periodic = |onset: usize, period: usize| (onset + period..text.len()).all(|i| text[i] == text[i - period]);
            let mut expected = None;
            'all: for period in 1..=text.len() {
                for onset in 0..text.len() {
                    let covered = text.len() - onset;
                    if covered >= 3 * period && covered >= MIN_TOKENS && periodic(onset, period) {
                        expected = Some(Loop { onset, period });
                        break 'all;
                    }
                }
            }
            prop_assert_eq!(ending_loop(&text), expected);
        }
    }
}
