//! What a reader hands on.

/// What a reader hands on, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The next piece of the document.
    Text(&'a str),
    /// The document is complete; what follows belongs to the next.
    EndOfDocument,
}

/// Who receives events; an error of its own ends the reading.
pub type Sink<'a, E> = dyn FnMut(Event<'_>) -> Result<(), E> + 'a;
