//! Fuzz targets for every reader of foreign data, each called with arbitrary bytes.
//!
//! The crate has a table of [`harnesses`], in one file for each area of the code, and [limits] on
//! the memory and time of reading an input. This package's program runs them on inputs that
//! libFuzzer mutates for coverage (`tools/fuzz/run`); the test `replay` runs them on the stored
//! inputs: `seeds`, and `regressions`, which once triggered a fault.
//!
//! A harness requires that the reader ends within the limits, with a value that keeps the reader's
//! promises or with an error of one line, which names the file. A panic is a fault, unless the
//! reader catches it and reports it in such a line.

mod decoding;
mod folders;
mod formats;
mod harness;
pub mod limits;
mod prepared;
mod preparing;
mod program;
mod scratch;
mod texts;
mod training;
mod zip;

pub use harness::Harness;

/// All harnesses, by area.
pub fn harnesses() -> impl Iterator<Item = &'static Harness> {
    let areas = [
        formats::HARNESSES,
        folders::HARNESSES,
        prepared::HARNESSES,
        preparing::HARNESSES,
        texts::HARNESSES,
        decoding::HARNESSES,
        training::HARNESSES,
        program::HARNESSES,
    ];
    areas.into_iter().flatten()
}
