//! Masking: replaces findings by tags.

use super::{Kind, chunks::TextChunks, find};
use std::collections::BTreeMap;

/// Replaces findings by [`Kind::tag`] in a stream of text.
#[derive(Default)]
pub struct Masking {
    chunks: TextChunks,
    /// Number of replacements of each kind.
    pub counts: BTreeMap<Kind, u64>,
}

/// The text with its findings replaced by tags.
pub fn masked(text: &str) -> String {
    Masking::default().masked(text)
}

impl Masking {
    /// Adds text to the open document and passes complete chunks, masked, to `sink`.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn add<E>(&mut self, text: &str, sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.chunks.add(text).into_iter().try_for_each(|chunk| sink(&self.masked(&chunk.text)))
    }

    /// Ends the document.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn end_document<E>(&mut self, sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.chunks.end_document().map_or(Ok(()), |chunk| sink(&self.masked(&chunk.text)))
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
