//! The error of a file or folder that cannot be read or written, and any error with its causes.

use std::{error::Error, io, path::Path, path::PathBuf};

/// What could not be done, with which file or folder, and why.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}", path.display())]
pub struct FileError {
    /// What failed, as words before the path: "cannot read".
    pub doing: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// Names the file in an error of the system.
pub trait At<T> {
    /// The same, where the error says what was being done, as in "cannot read", and with which
    /// file.
    ///
    /// # Errors
    /// Those of the system.
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, FileError> {
        self.map_err(|source| FileError { doing, path: path.as_ref().to_owned(), source })
    }
}

/// An error with its causes, in one line: "cannot read a.txt: permission denied".
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
