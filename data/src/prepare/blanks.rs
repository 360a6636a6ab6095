//! Drops blank documents of a source, counts the others and collects their titles.

use super::error::Error;
use crate::source::{Dated, Event, Sink};

/// Titles are cut to this many characters.
const LONGEST_TITLE: usize = 200;

/// Longer white space counts as text, so that it does not pile up in memory.
const MAX_BLANK_BYTES: usize = 1 << 20;

/// Drops documents that hold only white space, such as the one after a file's last separator.
pub struct BlankFilter<'a, 'b> {
    /// Leading white space of the open document.
    held: String,
    has_text: bool,
    dated: Option<Dated>,
    /// Number of documents emitted.
    pub documents: u64,
    titles: Vec<(u64, String)>,
    most_titles: usize,
    sink: &'a mut Sink<'b, Error>,
}

impl<'a, 'b> BlankFilter<'a, 'b> {
    /// Keeps at most `most_titles` titles.
    pub fn new(most_titles: usize, sink: &'a mut Sink<'b, Error>) -> Self {
        Self { held: String::new(), has_text: false, dated: None, documents: 0, titles: Vec::new(), most_titles, sink }
    }

    /// Titles by document number, from 1, for the documents that have one.
    pub fn titles(mut self) -> Vec<(u64, String)> {
        self.drop_orphaned_titles();
        self.titles
    }

    /// Drops a title that no document followed.
    fn drop_orphaned_titles(&mut self) {
        self.titles.retain(|&(number, _)| number <= self.documents);
    }

    pub fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Title(title) => {
                if self.titles.len() < self.most_titles {
                    self.drop_orphaned_titles();
                    self.titles.push((self.documents + 1, title.chars().take(LONGEST_TITLE).collect()));
                }
                (self.sink)(Event::Title(title))?;
            }
            Event::Dated(dated) => self.dated = Some(dated),
            Event::Text(text) if self.has_text => (self.sink)(Event::Text(text))?,
            Event::Text(text) if text.trim_start().is_empty() && self.held.len() + text.len() <= MAX_BLANK_BYTES => {
                self.held.push_str(text);
            }
            Event::Text(text) => {
                self.has_text = true;
                if let Some(dated) = self.dated {
                    (self.sink)(Event::Dated(dated))?;
                }
                if self.held.is_empty() {
                    return (self.sink)(Event::Text(text));
                }
                self.held.push_str(text);
                (self.sink)(Event::Text(&self.held))?;
                self.held.clear();
            }
            Event::EndOfDocument => {
                if std::mem::take(&mut self.has_text) {
                    self.documents += 1;
                    (self.sink)(Event::EndOfDocument)?;
                }
                self.dated = None;
                self.held.clear();
            }
        }
        Ok(())
    }
}
