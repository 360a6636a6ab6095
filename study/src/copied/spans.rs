//! Finds the stretches of a text that occur word for word in another.

use std::ops::Range;

use super::index::Index;
use crate::error::{Result, proceed_if};

/// The maximal spans of `text`, as byte ranges, that occur in the index and have at least `least`
/// characters (1 or more): none can be extended at either end and still occur, and none lies within
/// another. In order; neighbours may overlap, if their union does not occur as a whole.
///
/// # Errors
/// When `interrupted` says to stop.
pub fn maximal_spans(
    index: &Index,
    text: &str,
    least: usize,
    interrupted: &dyn Fn() -> bool,
) -> Result<Vec<Range<usize>>> {
    let text = Characters::new(text);
    let mut spans = Vec::new();
    let mut start = 0;
    // A span that begins here contains the next `least` characters. Mostly these occur nowhere, and
    // searching backwards from the last of them shows how far one can skip, as in the search of
    // Boyer and Moore (1977).
    while start + least <= text.len() {
        proceed_if(!interrupted())?;
        let reach = text.first_reaching(index, start, start + least);
        if reach > start {
            start = reach;
            continue;
        }
        let end = text.end_of_match(index, start);
        spans.push(text.bytes(start, end));
        if end == text.len() {
            break;
        }
        start = text.first_reaching(index, start + 1, end + 1);
    }
    Ok(spans)
}

/// The longest span of `text`, as a byte range, that occurs in the index; the first of several.
///
/// # Errors
/// When `interrupted` says to stop.
pub fn longest_span(index: &Index, text: &str, interrupted: &dyn Fn() -> bool) -> Result<Range<usize>> {
    let text = Characters::new(text);
    let (mut best, mut start) = ((0, 0), 0);
    while start + (best.1 - best.0) < text.len() {
        proceed_if(!interrupted())?;
        let reach = text.first_reaching(index, start, start + (best.1 - best.0) + 1);
        if reach == start {
            best = (start, text.end_of_match(index, start));
        } else {
            start = reach;
        }
    }
    Ok(text.bytes(best.0, best.1))
}

/// A text by characters, so that no match starts or ends inside one.
struct Characters<'a> {
    text: &'a str,
    /// The byte offset of each character, and the text's length.
    edges: Vec<usize>,
}

impl<'a> Characters<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, edges: text.char_indices().map(|(at, _)| at).chain([text.len()]).collect() }
    }

    fn len(&self) -> usize {
        self.edges.len() - 1
    }

    fn bytes(&self, start: usize, end: usize) -> Range<usize> {
        self.edges[start]..self.edges[end]
    }

    /// The end of the longest match that starts with character `start`.
    fn end_of_match(&self, index: &Index, start: usize) -> usize {
        let from = self.edges[start];
        let end = from + index.longest_match(&self.text.as_bytes()[from..]);
        self.edges.partition_point(|&edge| edge <= end) - 1
    }

    /// The first character from `start` on from which everything up to `end` occurs in the index;
    /// `end` if none does.
    fn first_reaching(&self, index: &Index, start: usize, end: usize) -> usize {
        let (mut low, mut high) = (start, end); // if a stretch occurs, so do shorter ones: bisect
        while low < high {
            let middle = low.midpoint(high);
            if index.contains(&self.text.as_bytes()[self.bytes(middle, end)]) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn index(text: &str) -> Index {
        Index::new(text.as_bytes().to_vec()).unwrap()
    }

    fn never() -> bool {
        false
    }

    fn spans<'a>(learned: &str, text: &'a str, least: usize) -> Vec<&'a str> {
        maximal_spans(&index(learned), text, least, &never).unwrap().into_iter().map(|span| &text[span]).collect()
    }

    #[test]
    fn an_example_by_hand() {
        let learned = "to be or not to be, that is the question";
        assert_eq!(spans(learned, "not to be or not", 5), ["not to be", "to be or not"]);
        assert_eq!(spans(learned, "not to be or not", 10), ["to be or not"]);
        assert_eq!(spans(learned, "To be", 5), Vec::<&str>::new());
        assert_eq!(longest_span(&index(learned), "ask not to be, I question", &never).unwrap(), 3..15);
    }

    #[test]
    fn a_character_is_never_halved() {
        // é is C3 A9, è is C3 A8: their first bytes agree.
        assert_eq!(spans("aé", "aè", 1), ["a"]);
        assert_eq!(spans("é", "è", 1), Vec::<&str>::new());
    }

    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop_oneof![Just('a'), Just('b'), Just('é')], 0..40)
            .prop_map(|characters| characters.into_iter().collect())
    }

    proptest! {
        #[test]
        fn they_are_those_that_trying_everything_finds(learned in text(), text in text(), least in 1..8_usize) {
            let edges: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let stands = |from: usize, to: usize| learned.contains(&text[edges[from]..edges[to]]);
            let last = edges.len() - 1;
            let mut expected = Vec::new();
            for from in 0..last {
                for to in from + 1..=last {
                    let wider = (from > 0 && stands(from - 1, to)) || (to < last && stands(from, to + 1));
                    if stands(from, to) && !wider {
                        expected.push((from, to));
                    }
                }
            }
            let longest = expected.iter().map(|(from, to)| to - from).max().unwrap_or(0);
            expected.retain(|(from, to)| to - from >= least);
            let expected: Vec<Range<usize>> = expected.into_iter().map(|(from, to)| edges[from]..edges[to]).collect();
            prop_assert_eq!(maximal_spans(&index(&learned), &text, least, &never).unwrap(), expected);
            prop_assert_eq!(text[longest_span(&index(&learned), &text, &never).unwrap()].chars().count(), longest);
        }
    }
}
