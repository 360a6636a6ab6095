//! The documents of a file, held in memory.

use crate::source::Event;

/// Documents from a file's events.
#[derive(Default)]
pub struct Documents {
    ended: Vec<String>,
    open: String,
    bytes: usize,
}

impl Documents {
    /// Takes in the next event. Returns about how many bytes are held: an empty document takes some,
    /// too, and there may be many.
    pub fn add(&mut self, event: Event<'_>) -> usize {
        match event {
            Event::Title(_) | Event::Dated(_) => {}
            Event::Text(text) => {
                self.bytes += text.len();
                self.open.push_str(text);
            }
            Event::EndOfDocument => {
                self.bytes += size_of::<String>();
                self.ended.push(std::mem::take(&mut self.open));
            }
        }
        self.bytes
    }

    /// All of them, an unfinished last one included unless it is blank.
    pub fn into_all(mut self) -> Vec<String> {
        if !self.open.trim().is_empty() {
            self.ended.push(self.open);
        }
        self.ended
    }
}
