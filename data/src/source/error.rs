//! Why a text cannot be read.

use ember_host::file_error::FileError;
use std::path::PathBuf;

/// Where the encoding of a text was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingOrigin {
    /// Its byte order mark, which takes precedence.
    Mark,
    /// The user, or a declaration in the file.
    User,
    /// A guess from the text itself.
    Guess,
}

/// Why a text cannot be read. Every message names the file as the user does, and counts lines from
/// 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum Error {
    /// The operating system could not read a file or folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is missing, broken, or ends too early.
    #[error("cannot read {what}")]
    Unreadable { what: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The folder of a run.
    #[error("{0} is a run, not text; name the text itself")]
    Run(PathBuf),
    /// A prepared folder.
    #[error("{0} is a prepared text already; name the text itself")]
    Prepared(PathBuf),
    /// An input that cannot be used: not a file, not text, empty, or named twice.
    #[error("{name} {what}")]
    Unusable { name: String, what: String },
    /// Text that is damaged or not in the expected encoding: what is wrong and where, the expected
    /// encoding, and where that was taken from.
    #[error("{name} {what}; {}", remedy(encoding, *origin))]
    Encoding { name: String, what: String, encoding: &'static str, origin: EncodingOrigin },
    /// No encoding has this name.
    #[error("no encoding is called \"{0}\"; give one such as utf-8, windows-1252, shift_jis, gb18030 or koi8-r")]
    UnknownEncoding(String),
    /// A table or JSON Lines file without the requested field.
    #[error("{what}; name one of these: {}", fields.join(", "))]
    NoField { what: String, fields: Vec<String> },
    /// The requested field does not hold text: where, what it holds, and the advice to name
    /// another.
    #[error("{0}")]
    NoTextField(String),
}

impl Error {
    pub(super) fn unusable(name: impl ToString, what: impl Into<String>) -> Self {
        Self::Unusable { name: name.to_string(), what: what.into() }
    }
}

/// Advice for text that is invalid in this encoding.
fn remedy(encoding: &str, origin: EncodingOrigin) -> String {
    let drop = format!("drop invalid bytes with iconv -c -f {encoding} -t UTF-8 FILE > NEW");
    match origin {
        EncodingOrigin::Mark => drop,
        EncodingOrigin::User => format!("set another encoding, or {drop}"),
        EncodingOrigin::Guess => format!("{drop}, or set its encoding"),
    }
}
