//! Calling the `tokenizers` library.

use super::error::Error;
use ember_host::panics::quietly;

/// Calls the library with what somebody else wrote: its errors, and its panics over damaged files, are errors of ours.
pub fn of_library<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    quietly(call).map_err(|panic| Error::Library(panic.to_string()))?.map_err(library_error)
}

/// The library's errors, which are not ours to wrap as they are.
pub fn library_error(error: tokenizers::Error) -> Error {
    Error::Library(error.to_string())
}
