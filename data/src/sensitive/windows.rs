//! A document in windows to look at one by one, whatever the pieces in which it comes.

/// A window is at most so long.
const LONGEST: usize = 64 << 10;

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
/// space, else anywhere; and not inside a private key's frame. Where that is depends on the
/// document alone.
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
    let line = reach.rfind('\n').map(|at| at + 1);
    let white = || reach.char_indices().rfind(|(_, character)| character.is_whitespace());
    let end = line.or_else(|| white().map(|(at, space)| at + space.len_utf8())).unwrap_or(reach.len());
    let key = reach[..end].rfind("-----BEGIN ").filter(|&begin| begin > 0);
    key.filter(|&begin| !reach[begin..end].contains("-----END ")).unwrap_or(end)
}
