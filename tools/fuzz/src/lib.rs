//! Every reader of what others made, each called with whatever bytes.
//!
//! What it is: a table of [`harnesses`], a file here for each room whose readers they call, and
//! [limits] on what reading an input may take. The program of this package hands them inputs that
//! libFuzzer grows by what they reach (`tools/fuzz/run`); the test `replay` hands them what was kept:
//! `seeds`, and `regressions`, the inputs that once found a fault.
//!
//! What a harness asks of a reader: it comes to an end, within the limits, in a value that holds to
//! what the reader promises or in an error of one line, which names the file. A panic is a fault,
//! unless the reader holds it and says it in a line.

mod decoding;
mod folders;
mod formats;
mod harness;
pub mod limits;
mod place;
mod prepared;
mod preparing;
mod program;
mod texts;
mod training;
mod zip;

pub use harness::Harness;

/// All harnesses, by room.
pub fn harnesses() -> impl Iterator<Item = &'static Harness> {
    let rooms = [
        formats::HARNESSES,
        folders::HARNESSES,
        prepared::HARNESSES,
        preparing::HARNESSES,
        texts::HARNESSES,
        decoding::HARNESSES,
        training::HARNESSES,
        program::HARNESSES,
    ];
    rooms.into_iter().flatten()
}
