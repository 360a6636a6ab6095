//! How a program classifies an error: a failure, or wrong usage.

use std::error::Error;

/// An error in how the program was called (exit code 2), such as a flag out of range.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl UsageError {
    /// A usage error with one line that names the flag, what is wrong with it, and what to do.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// An error in the program's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Worded {
    /// Something failed: exit code 1.
    Failure(String),
    /// The program was called wrongly: exit code 2.
    Usage(String),
}

/// A program's words for one error of a chain; `None` if the library's own words suffice.
pub type Wording = fn(&(dyn Error + 'static)) -> Option<Worded>;

impl Worded {
    /// The words alone.
    pub fn words(self) -> String {
        match self {
            Self::Failure(words) | Self::Usage(words) => words,
        }
    }

    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failure(_) => 1,
            Self::Usage(_) => 2,
        }
    }
}
