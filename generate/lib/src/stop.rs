//! Stop strings, searched for in text that is still growing.

use std::sync::Arc;

/// A stop string without a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stop string is empty, which would end every text at once; give at least one character")]
pub struct EmptyStopString;

/// Strings whose appearance in the generated text ends it.
///
/// The stop string that completes first wins, and of several that complete at the same place the
/// longest. So the result does not depend on how the text was split into tokens.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    /// Shared by all texts that they may end.
    strings: Arc<[String]>,
}

impl StopStrings {
    /// Stops at any of `strings`.
    ///
    /// # Errors
    /// If one is empty, since it would end every text before it began.
    pub fn new(strings: Vec<String>) -> Result<Self, EmptyStopString> {
        if strings.iter().any(String::is_empty) { Err(EmptyStopString) } else { Ok(Self { strings: strings.into() }) }
    }

    /// Bytes of the longest stop string; 0 when there are none.
    pub fn longest(&self) -> usize {
        self.strings.iter().map(String::len).max().unwrap_or(0)
    }

    /// Byte offset in `text` of the stop string that completes first.
    pub fn find(&self, text: &str) -> Option<usize> {
        let complete = |stop: &String| text.find(stop.as_str()).map(|start| (start + stop.len(), start));
        self.fitting(text).filter_map(complete).min().map(|(_, start)| start)
    }

    /// The stop strings that are no longer than `text`. A search takes time proportional to the
    /// stop string's length, so skipping the others saves it.
    fn fitting(&self, text: &str) -> impl Iterator<Item = &String> {
        self.strings.iter().filter(move |stop| stop.len() <= text.len())
    }

    /// Byte offset from which `text` may still turn out to be a prefix of a stop string; the length
    /// of `text` if no stop string can have begun.
    pub fn undecided_from(&self, text: &str) -> usize {
        let begins = |start: &usize| self.strings.iter().any(|stop| stop.starts_with(&text[*start..]));
        let first = text.len().saturating_sub(self.longest().saturating_sub(1));
        (first..text.len()).filter(|&start| text.is_char_boundary(start)).find(begins).unwrap_or(text.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stops(strings: &[&str]) -> StopStrings {
        StopStrings::new(strings.iter().map(|s| s.to_string()).collect()).unwrap()
    }

    #[test]
    fn the_first_complete_stop_string_wins_and_the_longest_of_those() {
        assert_eq!(stops(&["abcd", "bc"]).find("xabcd"), Some(2));
        assert_eq!(stops(&["c", "bc"]).find("abc"), Some(1));
        assert_eq!(stops(&["\n\n", "End"]).find("The End.\n\n"), Some(4));
        assert_eq!(stops(&["x"]).find("abc"), None);
        assert_eq!(stops(&[]).find("abc"), None);
    }

    #[test]
    fn a_stop_string_longer_than_the_text_is_not_searched_for() {
        let stops = stops(&["aaaa", "ab", "b"]);
        assert_eq!(stops.fitting("aaa").collect::<Vec<_>>(), ["ab", "b"]);
        assert_eq!(stops.fitting("aaaa").count(), 3);
        assert_eq!((stops.find("aaa"), stops.undecided_from("baa"), stops.find("aaaa")), (None, 1, Some(0)));
    }

    #[test]
    fn what_may_become_a_stop_string_is_undecided() {
        assert_eq!(stops(&["END"]).undecided_from("the E"), 4);
        assert_eq!(stops(&["END"]).undecided_from("the EN"), 4);
        assert_eq!(stops(&["END"]).undecided_from("the ENT"), 7);
        assert_eq!(stops(&["aab"]).undecided_from("xaa"), 1);
        assert_eq!(stops(&["aab"]).undecided_from("xaaa"), 2);
        assert_eq!(stops(&["\u{e9}t\u{e9}"]).undecided_from("l'\u{e9}"), 2);
        assert_eq!(stops(&[]).undecided_from("abc"), 3);
    }

    #[test]
    fn many_texts_have_them_once() {
        let one = stops(&["END"]);
        assert!(Arc::ptr_eq(&one.strings, &one.clone().strings));
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        let error = StopStrings::new(vec!["a".into(), String::new()]).unwrap_err();
        assert_eq!(error, EmptyStopString);
    }
}
