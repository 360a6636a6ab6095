//! The libraries' errors in the programs' words.
//!
//! A library's error says what is wrong and where. What to do about it depends on flags, which only
//! a program has. So a program finds the library's error in the chain by its type, and prints it in
//! its own words.

mod data;
pub mod decoding;
mod model;

use std::error::Error;

use ember_host::file_error::joined;

pub use crate::usage::{Worded, Wording};
pub use model::limits;

use crate::usage::UsageError;

/// The words for errors of the libraries under both programs.
pub fn shared(cause: &(dyn Error + 'static)) -> Option<Worded> {
    const SHARED: [Wording; 4] = [
        |cause| Some(Worded::Usage(cause.downcast_ref::<UsageError>()?.to_string())),
        |cause| data::line(cause).map(Worded::Failure),
        |cause| model::line(cause).map(Worded::Failure),
        decoding::worded,
    ];
    SHARED.iter().find_map(|words| words(cause))
}

/// An error with its causes as one line: a usage error if one of them is.
pub fn line(error: &(dyn Error + 'static)) -> Worded {
    words_by(error, shared)
}

/// As [`line()`], with the words of `wording` for each error of the chain.
pub fn words_by(error: &(dyn Error + 'static), wording: impl Fn(&(dyn Error + 'static)) -> Option<Worded>) -> Worded {
    let mut is_usage = false;
    let words = anyhow::Chain::new(error).map(|cause| match wording(cause) {
        None => cause.to_string(),
        Some(Worded::Failure(words)) => words,
        Some(Worded::Usage(words)) => {
            is_usage = true;
            words
        }
    });
    let line = joined(words);
    if is_usage { Worded::Usage(line) } else { Worded::Failure(line) }
}

/// The error in one program's words: if `wording`, which only that program has, matches a part of
/// the chain, an error with the program's line for the whole chain; otherwise the same error.
pub fn reworded(error: anyhow::Error, wording: Wording) -> anyhow::Error {
    if !error.chain().any(|cause| wording(cause).is_some()) {
        return error;
    }
    match words_by(error.as_ref(), |cause| wording(cause).or_else(|| shared(cause))) {
        Worded::Usage(line) => UsageError::new(line).into(),
        Worded::Failure(line) => anyhow::Error::msg(line),
    }
}
