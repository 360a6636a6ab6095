//! Where a reading of the text is, and how one goes on from there.

use super::{corpus::Reading, error::Error};
use crate::source::Event;
use serde::{Deserialize, Serialize};

/// A place that a reading goes on from: before a piece of text, or before the first part.
#[derive(Default, Deserialize)]
pub struct Position {
    /// The part of the corpus.
    pub part: usize,
    /// Bytes of the part's text that stand before; `None` where it is yet to begin.
    pub text_bytes: Option<u64>,
    /// What was found in the parts before.
    pub reading: Reading,
}

/// Where an event stands. A checkpoint keeps it, and reads it back as a [`Position`], which has the same
/// fields.
#[derive(Serialize)]
pub struct Here<'a> {
    part: usize,
    text_bytes: u64,
    reading: &'a Reading,
    /// Whether it stands before the place that the reading goes on from.
    #[serde(skip)]
    pub is_again: bool,
}

impl Here<'_> {
    /// The number of the source, from 0.
    pub fn source(&self) -> usize {
        self.reading.sources.len()
    }
}

/// Who receives events, each with its place.
pub type PlacedSink<'a> = dyn FnMut(Here<'_>, Event<'_>) -> Result<(), Error> + 'a;

/// Hands on the events of a part, each with its place, and says which were handed on before an
/// interruption.
pub struct Handing<'a, 'b> {
    part: usize,
    /// Bytes of its text that were handed on before the interruption; `None` once they are past.
    again: Option<u64>,
    text_bytes: u64,
    reading: &'a Reading,
    sink: &'a mut PlacedSink<'b>,
}

impl<'a, 'b> Handing<'a, 'b> {
    /// Goes on from behind so many bytes of the part's text.
    pub fn new(part: usize, again: Option<u64>, reading: &'a Reading, sink: &'a mut PlacedSink<'b>) -> Self {
        Self { part, again, text_bytes: 0, reading, sink }
    }

    /// Hands on an event; the text that reaches over the place, in two pieces.
    ///
    /// # Errors
    /// The sink's.
    pub fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        let (Some(again), Event::Text(text)) = (self.again, event) else { return self.hand_on(event) };
        let known = again.saturating_sub(self.text_bytes);
        if known >= text.len() as u64 {
            return self.hand_on(event);
        }
        let (known, new) = text.split_at(text.floor_char_boundary(known as usize));
        self.hand_on(Event::Text(known))?;
        self.again = None;
        self.hand_on(Event::Text(new))
    }

    fn hand_on(&mut self, event: Event<'_>) -> Result<(), Error> {
        let Self { part, text_bytes, reading, .. } = *self;
        if let Event::Text(text) = event {
            self.text_bytes += text.len() as u64;
        }
        (self.sink)(Here { part, text_bytes, reading, is_again: self.again.is_some() }, event)
    }
}
