//! Why a text cannot be read.

use ember_host::file_error::FileError;
use std::path::PathBuf;

/// Who says in which encoding a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaidBy {
    /// The byte order mark at its beginning, whatever else is said.
    Mark,
    /// The user, or the file where it declares it.
    User,
    /// Nobody: the text looks so.
    Nobody,
}

/// Why a text cannot be read; every message names the file as the user does, and counts lines from
/// 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum Error {
    /// The system does not let a file or folder be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is missing, broken, or ends too early.
    #[error("cannot read {what}")]
    Unreadable { what: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The folder of a run.
    #[error("{0} is a run, not text; name the text itself")]
    Run(PathBuf),
    /// A folder that a text was prepared into.
    #[error("{0} is a prepared text already; name the text itself")]
    Prepared(PathBuf),
    /// An input that cannot be used: no file, no text, nothing in it, or named twice.
    #[error("{name} {what}")]
    Unusable { name: String, what: String },
    /// Text that is in another encoding than it is taken to be, or damaged: what it is not, and where;
    /// which encoding that is, and who says it.
    #[error("{name} {what}; {}", remedy(encoding, *said_by))]
    Encoding { name: String, what: String, encoding: &'static str, said_by: SaidBy },
    /// No encoding is called so.
    #[error("no encoding is called \"{0}\"; give one such as utf-8, windows-1252, shift_jis, gb18030 or koi8-r")]
    UnknownEncoding(String),
    /// A table or JSON Lines without the field that was asked for.
    #[error("{what}; name one of these: {}", fields.join(", "))]
    NoField { what: String, fields: Vec<String> },
    /// The field that was asked for holds something else than text: where, what, and to name
    /// another.
    #[error("{0}")]
    NoTextField(String),
}

impl Error {
    pub(super) fn unusable(name: impl ToString, what: impl Into<String>) -> Self {
        Self::Unusable { name: name.to_string(), what: what.into() }
    }
}

/// What helps where something does not belong into a text of this encoding.
fn remedy(encoding: &str, said_by: SaidBy) -> String {
    let drop = format!("drop such bytes with iconv -c -f {encoding} -t UTF-8 FILE > NEW");
    match said_by {
        SaidBy::Mark => drop,
        SaidBy::User => format!("set another encoding, or {drop}"),
        SaidBy::Nobody => format!("{drop}, or set the encoding that it is in"),
    }
}
