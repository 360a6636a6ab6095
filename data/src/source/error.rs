//! Why a text cannot be read.

use ember_host::file_error::FileError;
use std::{io, io::ErrorKind, iter::successors, path::PathBuf};

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
    /// Whether the operating system failed to read, as when a network disk is gone, and not for
    /// what the file is: then the same file may be read later.
    pub fn is_of_the_disk(&self) -> bool {
        use ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied};
        let is_of_the_file = |kind| {
            matches!(kind, InvalidFilename | InvalidInput | IsADirectory | NotADirectory | NotFound | PermissionDenied)
        };
        self.of_system().is_some_and(|error| !is_of_the_file(error.kind()))
    }

    /// The operating system's error that caused this one, if any did.
    pub fn of_system(&self) -> Option<&io::Error> {
        let whole: &(dyn std::error::Error + 'static) = self;
        let causes = successors(Some(whole), |error| (*error).source());
        causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).find(|error| error.raw_os_error().is_some())
    }

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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fails_is_told_from_a_file_that_cannot_be_used() {
        let of = |error: io::Error| {
            let file = FileError { doing: "cannot read", path: "a.txt".into(), source: error };
            Error::from(file).is_of_the_disk()
        };
        let (eio, estale) = (5, 116);
        assert!([eio, estale].into_iter().all(|code| of(io::Error::from_raw_os_error(code))));
        let (enoent, eacces, enotdir, einval) = (2, 13, 20, 22);
        assert!(![enoent, eacces, enotdir, einval].into_iter().any(|code| of(io::Error::from_raw_os_error(code))));
        assert!(!of(io::Error::other("corrupt deflate stream")) && !of(ErrorKind::UnexpectedEof.into()));
        let what = "a.txt after line 7".to_owned();
        assert!(Error::Unreadable { what, source: io::Error::from_raw_os_error(eio).into() }.is_of_the_disk());
        assert!(!Error::unusable("a.txt", "is empty").is_of_the_disk());
    }
}
