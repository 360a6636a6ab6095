//! Errors of model files of other programs.

use std::{path::Path, path::PathBuf};

use ember_host::{file_error::FileError, output};

use crate::NumberType;

/// An error of the source of a tensor's values.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a model file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages explain the fields
pub enum FormatError {
    /// A file system error.
    #[error(transparent)]
    File(#[from] FileError),
    /// The output path cannot be written.
    #[error(transparent)]
    Output(#[from] output::Error),
    /// The file is cut short, contradicts itself, or was never of its format.
    #[error("{} is truncated or damaged ({why}); copy or download it again", path.display())]
    Damaged { path: PathBuf, why: String },
    /// The file is intact, but needs something that is not supported here.
    #[error("{}: {what}", path.display())]
    Unsupported { path: PathBuf, what: String },
    /// The format cannot express something about a model.
    #[error("{format} cannot store {what}")]
    CannotSay { format: &'static str, what: String },
    /// The format has no such numbers.
    #[error("{format} cannot store {} numbers", kind.name())]
    NumberType { format: &'static str, kind: NumberType },
    /// The values of a tensor cannot be read from their source.
    #[error("cannot read tensor {name}")]
    Values { name: String, source: Cause },
}

/// This crate's result type.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

impl FormatError {
    /// Whether another type of numbers would do.
    pub fn is_of_number_type(&self) -> bool {
        matches!(self, Self::NumberType { .. })
    }

    pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.into() }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into() }
    }
}

/// Untrusted text shown in one line: its beginning, with control characters escaped.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let beginning: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(MOST).is_some() { "..." } else { "" };
    format!("\"{beginning}{rest}\"")
}
