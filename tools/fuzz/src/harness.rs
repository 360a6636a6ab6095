//! The type of a harness, and the checks of a reader's errors.

use std::error::Error;

use ember_host::file_error::with_causes;

use crate::scratch;

/// A reader under test, and the function that feeds it bytes.
pub struct Harness {
    /// Its name, which is also the name of the folder of its inputs.
    pub name: &'static str,
    /// Maximum length of an input in bytes: shorter inputs reach the same code sooner.
    pub longest: usize,
    /// Reads an input; panics if the reader breaks a promise.
    pub read: fn(&[u8]),
}

/// Returns the value, or checks that the error is one line of text.
pub fn check_error<T, E: Error + 'static>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| one_line(&with_causes(&error))).ok()
}

/// As [`check_error`], for the reader of a [file](crate::scratch), which its errors must name.
pub fn check_file_error<T, E: Error + 'static>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| names_file(&with_causes(&error))).ok()
}

/// Checks that a message is one line of text.
pub fn one_line(line: &str) {
    assert!(!line.trim().is_empty() && !line.contains('\n'), "an error that is not one line: {line:?}");
}

/// Checks that a message is one line and names the file.
pub fn names_file(line: &str) {
    one_line(line);
    assert!(line.contains(scratch::PREFIX), "an error that names no file: {line}");
}
