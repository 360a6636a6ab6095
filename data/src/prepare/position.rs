//! Positions in the text, from which a pass can resume.

use super::{error::Error, reading::Reading};
use crate::source::Event;
use serde::{Deserialize, Serialize};

/// A position to resume from: before a piece of text, or before the first part.
#[derive(Default, Deserialize)]
pub struct Position {
    /// Index of the part among those that are not left out.
    pub part: usize,
    /// Bytes of the part's text before the position; `None` if the part has not begun.
    pub text_bytes: Option<u64>,
    /// Result of the parts before.
    pub reading: Reading,
}

/// Position of an event. It is saved in a checkpoint and loaded as a [`Position`], which has the
/// same fields.
#[derive(Serialize)]
pub struct EventPosition<'a> {
    part: usize,
    text_bytes: u64,
    reading: &'a Reading,
    /// Whether the event lies before the position that the pass resumed from.
    #[serde(skip)]
    pub is_replayed: bool,
}

impl EventPosition<'_> {
    /// Number of the source, from 0.
    pub fn source(&self) -> usize {
        self.reading.sources.len()
    }
}

/// Callback that receives events with their positions.
pub type PositionedSink<'a> = dyn FnMut(EventPosition<'_>, Event<'_>) -> Result<(), Error> + 'a;

/// Emits the events of a part with their positions, and marks those that were emitted before an
/// interruption.
pub struct Emitter<'a, 'b> {
    part: usize,
    /// Bytes of text that were emitted before the interruption; `None` once they are past.
    replayed: Option<u64>,
    text_bytes: u64,
    reading: &'a Reading,
    sink: &'a mut PositionedSink<'b>,
}

impl<'a, 'b> Emitter<'a, 'b> {
    /// Marks events as replayed up to this many bytes of the part's text.
    pub fn new(part: usize, replayed: Option<u64>, reading: &'a Reading, sink: &'a mut PositionedSink<'b>) -> Self {
        Self { part, replayed, text_bytes: 0, reading, sink }
    }

    /// Emits an event; text that spans the resume position is emitted in two pieces.
    ///
    /// # Errors
    /// The sink's.
    pub fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        let (Some(replayed), Event::Text(text)) = (self.replayed, event) else { return self.emit(event) };
        let known = replayed.saturating_sub(self.text_bytes);
        if known >= text.len() as u64 {
            return self.emit(event);
        }
        let (known, new) = text.split_at(text.floor_char_boundary(known as usize));
        self.emit(Event::Text(known))?;
        self.replayed = None;
        self.emit(Event::Text(new))
    }

    fn emit(&mut self, event: Event<'_>) -> Result<(), Error> {
        let Self { part, text_bytes, reading, .. } = *self;
        if let Event::Text(text) = event {
            self.text_bytes += text.len() as u64;
        }
        (self.sink)(EventPosition { part, text_bytes, reading, is_replayed: self.replayed.is_some() }, event)
    }
}
