//! A document in windows to look at one by one, whatever the pieces in which it comes.

use super::{Finding, find};

/// A window is at most so long.
const LONGEST: usize = 64 << 10;

/// So many bytes before and behind a cut are looked at: what is found without white space is shorter.
const AROUND: usize = 1 << 10;

/// So many ends of lines are tried for a cut, and as many places of each other kind.
const TRIED: usize = 64;

/// A stretch of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The bytes of the document before it.
    pub offset: u64,
    /// Its text.
    pub text: String,
    /// Whether its first line begins in it.
    pub begins_line: bool,
    /// Whether its last line ends in it.
    pub ends_line: bool,
}

/// Cuts a document into windows: at the end of the last line that is in reach, else behind white
/// space, else behind a sign that is no letter, else anywhere; and not inside of what is found, nor
/// inside a private key's frame. Where that is depends on the document alone.
#[derive(Default)]
pub struct Windows {
    waiting: String,
    offset: u64,
    /// Whether the window before ended within a line.
    within_line: bool,
}

impl Windows {
    /// Adds text to the document, and hands on the windows that are complete.
    pub fn add(&mut self, text: &str) -> Vec<Window> {
        self.waiting.push_str(text);
        let (mut windows, mut start) = (Vec::new(), 0);
        while self.waiting.len() - start > LONGEST {
            let reach = &self.waiting[start..self.waiting.floor_char_boundary(start + LONGEST)];
            let end = start + cut(reach);
            let text = self.waiting[start..end].to_owned();
            let ends_line = text.ends_with('\n');
            let begins_line = !std::mem::replace(&mut self.within_line, !ends_line);
            windows.push(Window { offset: self.offset, text, begins_line, ends_line });
            self.offset += (end - start) as u64;
            start = end;
        }
        self.waiting.drain(..start);
        windows
    }

    /// The last window, as the document ends; the next begins.
    pub fn end_document(&mut self) -> Option<Window> {
        let text = std::mem::take(&mut self.waiting);
        let offset = std::mem::take(&mut self.offset);
        let begins_line = !std::mem::take(&mut self.within_line);
        (!text.is_empty()).then_some(Window { offset, text, begins_line, ends_line: true })
    }
}

/// Where a window ends that may reach so far.
fn cut(reach: &str) -> usize {
    let most = reach.floor_char_boundary(reach.len().saturating_sub(AROUND));
    let behind = |is_last: fn(char) -> bool| {
        let lasts = reach[..most].char_indices().rev().filter(move |&(_, character)| is_last(character));
        lasts.map(|(at, character)| at + character.len_utf8()).take(TRIED)
    };
    let places = behind(|character| character == '\n').chain(behind(char::is_whitespace));
    let mut places = places.chain(behind(|character| !character.is_alphanumeric()));
    let end = places.find(|&at| parts_nothing(reach, at)).unwrap_or(most);
    let key = reach[..end].rfind("-----BEGIN ").filter(|&begin| begin > 0);
    key.filter(|&begin| !reach[begin..end].contains("-----END ")).unwrap_or(end)
}

/// Whether around this place the same is found in one piece and in two.
fn parts_nothing(reach: &str, at: usize) -> bool {
    let start = reach.floor_char_boundary(at.saturating_sub(AROUND));
    let around = &reach[start..reach.floor_char_boundary(at + AROUND)];
    let (before, behind) = around.split_at(at - start);
    let moved = |Finding { kind, range }| Finding { kind, range: range.start + before.len()..range.end + before.len() };
    let apart = find(before).into_iter().chain(find(behind).into_iter().map(moved));
    apart.eq(find(around))
}
