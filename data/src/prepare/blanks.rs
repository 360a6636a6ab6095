//! What is handed on of a source: its documents with text in them, and what they are called.

use super::error::Error;
use crate::source::{Dated, Event, Sink};

/// The most characters that are kept of a title.
const LONGEST_TITLE: usize = 200;

/// White space longer than this is text after all: it must not pile up here.
const MOST_BLANK_BYTES: usize = 1 << 20;

/// Leaves out documents of nothing but white space, such as what follows the last separator of a
/// file.
pub struct BlankFilter<'a, 'b> {
    /// White space at the beginning of a document.
    held: String,
    begun: bool,
    dated: Option<Dated>,
    /// Documents that were handed on, and what they are called.
    pub documents: u64,
    titles: Vec<(u64, String)>,
    most_titles: usize,
    sink: &'a mut Sink<'b, Error>,
}

impl<'a, 'b> BlankFilter<'a, 'b> {
    /// Keeps at most so many titles.
    pub fn new(most_titles: usize, sink: &'a mut Sink<'b, Error>) -> Self {
        Self { held: String::new(), begun: false, dated: None, documents: 0, titles: Vec::new(), most_titles, sink }
    }

    /// What the documents are called, by their numbers from 1, where the file says.
    pub fn titles(mut self) -> Vec<(u64, String)> {
        self.forget_titles_of_nothing();
        self.titles
    }

    /// A title without a document is nothing's.
    fn forget_titles_of_nothing(&mut self) {
        self.titles.retain(|&(number, _)| number <= self.documents);
    }

    pub fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Title(title) => {
                if self.titles.len() < self.most_titles {
                    self.forget_titles_of_nothing();
                    self.titles.push((self.documents + 1, title.chars().take(LONGEST_TITLE).collect()));
                }
                (self.sink)(Event::Title(title))?;
            }
            Event::Dated(dated) => self.dated = Some(dated),
            Event::Text(text) if self.begun => (self.sink)(Event::Text(text))?,
            Event::Text(text) if text.trim_start().is_empty() && self.held.len() + text.len() <= MOST_BLANK_BYTES => {
                self.held.push_str(text);
            }
            Event::Text(text) => {
                self.begun = true;
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
                if std::mem::take(&mut self.begun) {
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
