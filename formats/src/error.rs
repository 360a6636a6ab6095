//! What can be wrong with a model file of another program.

use std::{path::Path, path::PathBuf};

use ember_host::{file_error::FileError, output};

/// The error of whoever makes a tensor's values.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a model file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum FormatError {
    /// The system refuses.
    #[error(transparent)]
    File(#[from] FileError),
    /// Nothing can be written where the user says.
    #[error(transparent)]
    Output(#[from] output::Error),
    /// The file is cut short, contradicts itself, or was never of its format.
    #[error("{} is truncated or damaged ({why}); copy or download it again", path.display())]
    Damaged { path: PathBuf, why: String },
    /// The file is whole, but says what is not known or computed here.
    #[error("{}: {what}", path.display())]
    Unsupported { path: PathBuf, what: String },
    /// A format has no words for a model.
    #[error("{format} cannot say {what}")]
    CannotSay { format: &'static str, what: String },
    /// The values of a tensor cannot be had from where the model stands.
    #[error("cannot read tensor {name}")]
    Values { name: String, source: Cause },
}

/// What this crate returns.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

impl FormatError {
    pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.into() }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into() }
    }
}

/// A text of a stranger's file as a line shows it: its beginning, with nothing in it that a terminal
/// would obey.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let beginning: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(MOST).is_some() { "..." } else { "" };
    format!("\"{beginning}{rest}\"")
}
