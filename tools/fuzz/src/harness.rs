//! What a harness is, and what it asks of errors.

use std::error::Error;

use ember_host::file_error::with_causes;

use crate::place;

/// A reader, and how bytes come to it.
pub struct Harness {
    /// What it is called, and the folder of its inputs.
    pub name: &'static str,
    /// The longest inputs that are tried, in bytes: what a longer one may reach, a shorter one does
    /// sooner.
    pub longest: usize,
    /// Reads an input; panics where the reader does not do as it promises.
    pub read: fn(&[u8]),
}

/// Holds a reader to the form of its errors: a line that says something.
pub fn clear<T, E: Error + 'static>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| one_line(&with_causes(&error))).ok()
}

/// The same of the reader of a [file](place), which its errors name.
pub fn clear_file<T, E: Error + 'static>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| names_file(&with_causes(&error))).ok()
}

/// Holds to the form of an error's words.
pub fn one_line(line: &str) {
    assert!(!line.trim().is_empty() && !line.contains('\n'), "an error that is not one line: {line:?}");
}

/// Holds to the form of an error that comes of a file.
pub fn names_file(line: &str) {
    one_line(line);
    assert!(line.contains(place::NAME), "an error that names no file: {line}");
}
