//! Divides a document into chunks that are searched independently; the chunks do not depend on
//! the pieces in which the document arrives.

use super::{Finding, find};

/// Maximum bytes of a chunk.
const MAX_BYTES: usize = 64 << 10;

/// Bytes before and after a cut that are searched: findings without white space are shorter.
const MARGIN_BYTES: usize = 1 << 10;

/// Line ends tried for a cut, and positions tried of each other kind.
const MAX_TRIED: usize = 64;

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextChunk {
    /// Byte offset in the document.
    pub offset: u64,
    /// Its text.
    pub text: String,
    /// Whether its first line begins in it.
    pub begins_line: bool,
    /// Whether its last line ends in it.
    pub ends_line: bool,
}

/// Cuts a document into chunks: at the last line end within reach, else after white space, else
/// after a character that is not alphanumeric, else anywhere; never inside a finding or a private
/// key's frame. The cuts depend on the document alone.
#[derive(Default)]
pub struct TextChunks {
    waiting: String,
    offset: u64,
    /// Whether the previous chunk ended within a line.
    within_line: bool,
}

impl TextChunks {
    /// Adds text to the document and returns the chunks that are complete.
    pub fn add(&mut self, text: &str) -> Vec<TextChunk> {
        self.waiting.push_str(text);
        let (mut chunks, mut start) = (Vec::new(), 0);
        while self.waiting.len() - start > MAX_BYTES {
            let reach = &self.waiting[start..self.waiting.floor_char_boundary(start + MAX_BYTES)];
            let end = start + cut(reach);
            let text = self.waiting[start..end].to_owned();
            let ends_line = text.ends_with('\n');
            let begins_line = !std::mem::replace(&mut self.within_line, !ends_line);
            chunks.push(TextChunk { offset: self.offset, text, begins_line, ends_line });
            self.offset += (end - start) as u64;
            start = end;
        }
        self.waiting.drain(..start);
        chunks
    }

    /// Ends the document and returns its last chunk.
    pub fn end_document(&mut self) -> Option<TextChunk> {
        let text = std::mem::take(&mut self.waiting);
        let offset = std::mem::take(&mut self.offset);
        let begins_line = !std::mem::take(&mut self.within_line);
        (!text.is_empty()).then_some(TextChunk { offset, text, begins_line, ends_line: true })
    }
}

/// The end of a chunk whose text is at most `reach`.
fn cut(reach: &str) -> usize {
    let most = reach.floor_char_boundary(reach.len().saturating_sub(MARGIN_BYTES));
    let after = |is_last: fn(char) -> bool| {
        let lasts = reach[..most].char_indices().rev().filter(move |&(_, character)| is_last(character));
        lasts.map(|(at, character)| at + character.len_utf8()).take(MAX_TRIED)
    };
    let places = after(|character| character == '\n').chain(after(char::is_whitespace));
    let mut places = places.chain(after(|character| !character.is_alphanumeric()));
    let end = places.find(|&at| cuts_no_finding(reach, at)).unwrap_or(most);
    let key = reach[..end].rfind("-----BEGIN ").filter(|&begin| begin > 0);
    key.filter(|&begin| !reach[begin..end].contains("-----END ")).unwrap_or(end)
}

/// Whether searching the text around this position in one piece and in two gives the same findings.
fn cuts_no_finding(reach: &str, at: usize) -> bool {
    let start = reach.floor_char_boundary(at.saturating_sub(MARGIN_BYTES));
    let around = &reach[start..reach.floor_char_boundary(at + MARGIN_BYTES)];
    let (before, after) = around.split_at(at - start);
    let moved = |Finding { kind, range }| Finding { kind, range: range.start + before.len()..range.end + before.len() };
    let apart = find(before).into_iter().chain(find(after).into_iter().map(moved));
    apart.eq(find(around))
}
