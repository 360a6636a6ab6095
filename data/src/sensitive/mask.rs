//! The text with tags in the place of what was found.

use super::{Kind, find, windows::Windows};
use std::collections::BTreeMap;

/// Replaces what is found by [`Kind::tag`] as a text passes by.
#[derive(Default)]
pub struct Masking {
    windows: Windows,
    /// How many of each kind were replaced.
    pub counts: BTreeMap<Kind, u64>,
}

/// A text with tags in the place of what is found in it.
pub fn masked(text: &str) -> String {
    Masking::default().masked(text)
}

impl Masking {
    /// Adds text to the open document; what of it is settled goes to `sink`.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn add<E>(&mut self, text: &str, sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.windows.add(text).into_iter().try_for_each(|window| sink(&self.masked(&window.text)))
    }

    /// Ends the document.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn end_document<E>(&mut self, sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.windows.end_document().map_or(Ok(()), |window| sink(&self.masked(&window.text)))
    }

    fn masked(&mut self, text: &str) -> String {
        let found = find(text);
        let mut masked = String::with_capacity(text.len());
        let mut end = 0;
        for finding in found {
            masked += &text[end..finding.range.start];
            masked += finding.kind.tag();
            end = finding.range.end;
            *self.counts.entry(finding.kind).or_default() += 1;
        }
        masked + &text[end..]
    }
}
