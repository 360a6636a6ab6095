//! The stages that every event of a part passes through, from the reader to the sink of the pass.
//! Each stage owns the next one and calls it:
//!
//! | stage | what it does |
//! |---|---|
//! | [`Pipeline`] | counts the text and masks titles |
//! | [`BlankFilter`] | drops blank documents, counts the others and collects their titles; holds back a document's date and leading white space until its text comes |
//! | [`Masker`] | masks private data in the text |
//! | [`Emitter`] | adds the position of the event |

use super::{error::Error, position::Emitter, reading::Source};
use crate::sensitive::{self, Masking};
use crate::source::{Dated, Event, FileNotes};
use std::collections::BTreeMap;

/// Titles are cut to this many characters.
const LONGEST_TITLE: usize = 200;

/// Longer white space counts as text, so that it does not pile up in memory.
const MAX_BLANK_BYTES: usize = 1 << 20;

/// The first stage, which receives a reader's events.
pub struct Pipeline<'a, 'b> {
    /// Whether an unusable file has spoilt the pass: then text is counted, and nothing is emitted.
    is_spoilt: bool,
    masks_titles: bool,
    /// Bytes of text received.
    bytes: u64,
    filter: BlankFilter<'a, 'b>,
}

/// The result of reading one part.
pub struct PartResult {
    pub source: Result<Source, Error>,
    /// Bytes of its text, even if it cannot be read to its end.
    pub bytes: u64,
    pub masked: BTreeMap<sensitive::Kind, u64>,
}

impl<'a, 'b> Pipeline<'a, 'b> {
    /// Masks private data if `mask`; keeps at most `most_titles` titles.
    pub fn new(mask: bool, most_titles: usize, is_spoilt: bool, emitter: Emitter<'a, 'b>) -> Self {
        let masker = Masker { masking: mask.then(Masking::default), emitter };
        Self { is_spoilt, masks_titles: mask, bytes: 0, filter: BlankFilter::new(most_titles, masker) }
    }

    /// Passes an event through all stages; in a spoilt pass, only counts its text.
    ///
    /// # Errors
    /// The sink's.
    pub fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::Text(text) = event {
            self.bytes += text.len() as u64;
        }
        match event {
            _ if self.is_spoilt => Ok(()),
            // Before the filter, which collects titles.
            Event::Title(title) if self.masks_titles => self.filter.event(Event::Title(&sensitive::masked(title))),
            event => self.filter.event(event),
        }
    }

    /// The result of the part of this name, after reading it ended with `read`.
    pub fn finish(self, name: String, read: Result<FileNotes, Error>) -> PartResult {
        let Self { bytes, mut filter, .. } = self;
        let (documents, titles) = ([filter.documents, 0], filter.take_titles());
        let masked = filter.masker.masking.map(|masking| masking.counts).unwrap_or_default();
        let source = read.map(|notes| {
            let FileNotes { guess: encoding, changes } = notes;
            Source { name, bytes, encoding, documents, titles, changes }
        });
        PartResult { source, bytes, masked }
    }
}

/// Drops documents that hold only white space, such as the one after a file's last separator.
struct BlankFilter<'a, 'b> {
    /// Leading white space of the open document.
    held: String,
    has_text: bool,
    dated: Option<Dated>,
    /// Number of documents emitted.
    documents: u64,
    titles: Vec<(u64, String)>,
    most_titles: usize,
    masker: Masker<'a, 'b>,
}

impl<'a, 'b> BlankFilter<'a, 'b> {
    /// Keeps at most `most_titles` titles.
    fn new(most_titles: usize, masker: Masker<'a, 'b>) -> Self {
        let (held, titles) = (String::new(), Vec::new());
        Self { held, has_text: false, dated: None, documents: 0, titles, most_titles, masker }
    }

    /// Titles by document number, from 1, for the documents that have one.
    fn take_titles(&mut self) -> Vec<(u64, String)> {
        self.drop_orphaned_titles();
        std::mem::take(&mut self.titles)
    }

    /// Drops a title that no document followed.
    fn drop_orphaned_titles(&mut self) {
        self.titles.retain(|&(number, _)| number <= self.documents);
    }

    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Title(title) => {
                if self.titles.len() < self.most_titles {
                    self.drop_orphaned_titles();
                    self.titles.push((self.documents + 1, title.chars().take(LONGEST_TITLE).collect()));
                }
                self.masker.event(Event::Title(title))?;
            }
            Event::Dated(dated) => self.dated = Some(dated),
            Event::Text(text) if self.has_text => self.masker.event(Event::Text(text))?,
            Event::Text(text) if text.trim_start().is_empty() && self.held.len() + text.len() <= MAX_BLANK_BYTES => {
                self.held.push_str(text);
            }
            Event::Text(text) => {
                self.has_text = true;
                if let Some(dated) = self.dated {
                    self.masker.event(Event::Dated(dated))?;
                }
                if self.held.is_empty() {
                    return self.masker.event(Event::Text(text));
                }
                self.held.push_str(text);
                self.masker.event(Event::Text(&self.held))?;
                self.held.clear();
            }
            Event::EndOfDocument => {
                if std::mem::take(&mut self.has_text) {
                    self.documents += 1;
                    self.masker.event(Event::EndOfDocument)?;
                }
                self.dated = None;
                self.held.clear();
            }
        }
        Ok(())
    }
}

/// Masks private data in the text, if that is on. Text may be held back until the document ends.
struct Masker<'a, 'b> {
    masking: Option<Masking>,
    emitter: Emitter<'a, 'b>,
}

impl Masker<'_, '_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        let Self { masking, emitter } = self;
        match (masking, event) {
            (Some(masking), Event::Text(text)) => masking.add(text, &mut |text| emitter.event(Event::Text(text))),
            (Some(masking), Event::EndOfDocument) => {
                masking.end_document(&mut |text| emitter.event(Event::Text(text)))?;
                emitter.event(Event::EndOfDocument)
            }
            (_, event) => emitter.event(event),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::prepare::{position::EventPosition, reading::Reading};

    const ADDRESS: &str = "ada@example.org";

    /// The events that reach the sink when the part has these, and the part's result.
    fn through(events: &[Event<'_>], mask: bool, is_spoilt: bool) -> (Vec<String>, PartResult) {
        let (mut received, reading) = (Vec::new(), Reading::default());
        let mut sink = |_: EventPosition<'_>, event: Event<'_>| -> Result<(), Error> {
            received.push(format!("{event:?}"));
            Ok(())
        };
        let mut pipeline = Pipeline::new(mask, 10, is_spoilt, Emitter::new(0, None, &reading, &mut sink));
        events.iter().for_each(|&event| pipeline.event(event).unwrap());
        let result = pipeline.finish("a.txt".to_owned(), Ok(FileNotes::default()));
        (received, result)
    }

    #[test]
    fn blank_documents_and_their_collected_titles_are_dropped_and_private_data_is_masked() {
        let text = format!("write to {ADDRESS}\n");
        let events = [
            Event::Title("blank"),
            Event::Text(" \n"),
            Event::EndOfDocument,
            Event::Title(ADDRESS),
            Event::Text("\n"),
            Event::Text(&text),
            Event::EndOfDocument,
            Event::Title("after the last document"),
        ];
        let (received, result) = through(&events, true, false);
        assert_eq!(received[1..3], [r#"Title("[e-mail]")"#, r#"Text("\nwrite to [e-mail]\n")"#]);
        assert_eq!((received.len(), &*received[3]), (5, "EndOfDocument"));
        let source = result.source.unwrap();
        assert_eq!((source.documents, source.bytes), ([1, 0], 3 + text.len() as u64));
        assert_eq!(source.titles, [(1, "[e-mail]".to_owned())]);
        assert_eq!(result.masked, BTreeMap::from([(sensitive::Kind::EmailAddress, 1)]));
    }

    #[test]
    fn in_a_spoilt_pass_text_is_only_counted() {
        let (received, result) = through(&[Event::Text(ADDRESS), Event::EndOfDocument], true, true);
        assert!(received.is_empty() && result.masked.is_empty());
        assert_eq!((result.bytes, result.source.unwrap().documents), (ADDRESS.len() as u64, [0, 0]));
    }
}
