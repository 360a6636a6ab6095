//! How many texts of each kind end in a loop: the same stretch repeated again and again.

use ember_decoding::loops::{Loop, ending_loop};
use serde::Serialize;

/// How often a stretch must be repeated at the end.
pub const TIMES: usize = 3;

/// Minimal number of tokens in a loop: a few full stops in a row are none.
pub const MIN_TOKENS: usize = 16;

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
        let found: Vec<Option<Loop>> = texts.into_iter().map(|ids| ending_loop(ids, TIMES, MIN_TOKENS)).collect();
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

    #[test]
    fn only_loops_have_an_onset() {
        let (looping, other) = ([&[1, 2][..], &[3; 20]].concat(), vec![1, 2, 3]);
        let counted = Loops::count("greedy", [looping.as_slice(), &other]);
        assert_eq!(
            (counted.texts, counted.loops, counted.mean_onset, counted.mean_period),
            (2, 1, Some(2.0), Some(1.0))
        );
        assert_eq!(Loops::count("real", [other.as_slice()]).mean_onset, None);
        assert_eq!(Loops::count("real", [&[7; 16][..], &[7; 15]]).loops, 1, "15 tokens are too few");
    }
}
