//! What an error becomes.

/// One error of a library, as a program says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Worded {
    /// Something failed: exit code 1.
    Failure(String),
    /// The program was called wrongly: exit code 2.
    Usage(String),
}
