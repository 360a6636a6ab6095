//! The error of a file or folder that cannot be read or written; errors printed with causes.

use std::{error::Error, io, path::Path, path::PathBuf};

/// What failed, on which file or folder, and why.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}", path.display())]
pub struct FileError {
    /// The operation that failed, as words before the path: "cannot read".
    pub doing: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

/// Adds the file to an operating system's error.
pub trait At<T> {
    /// The same result, whose error also says what failed, as in "cannot read", and on which file.
    ///
    /// # Errors
    /// The operating system's.
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, FileError> {
        self.map_err(|source| FileError { doing, path: path.as_ref().to_owned(), source })
    }
}

/// An error with its causes, in [one line](one_line): "cannot read a.txt: permission denied".
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    one_line(&joined(causes.map(ToString::to_string)))
}

/// An error's message and those of its causes, separated by colons. A cause that only repeats the
/// end of the text before it is left out: some libraries print a cause and also return it as the
/// source.
pub fn joined(causes: impl Iterator<Item = String>) -> String {
    let join = |line: String, cause: String| match line.ends_with(&cause) {
        true => line,
        false => format!("{line}: {cause}"),
    };
    causes.reduce(join).unwrap_or_default()
}

/// Characters kept of the beginning of a long line, and of its end, which says what to do.
const LONGEST: [usize; 2] = [1200, 400];

/// A message as one readable line, even if it contains names out of a file: its lines joined, and
/// the middle of a long one left out.
pub fn one_line(message: &str) -> String {
    let line = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let place = |at: Option<(usize, char)>| at.map(|(place, _)| place);
    let [first, last] = LONGEST;
    match (place(line.char_indices().nth(first)), place(line.char_indices().nth_back(last))) {
        (Some(first), Some(last)) if first < last => format!("{} … {}", &line[..first], &line[last..]),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let causes = ["cannot read a.docx", "ill-formed: no end tag", "no end tag"].map(str::to_owned);
        assert_eq!(joined(causes.into_iter()), "cannot read a.docx: ill-formed: no end tag");
    }

    #[test]
    fn a_message_is_one_line_whatever_stands_in_it() {
        assert_eq!(one_line("first\n   second\n\nthird"), "first; second; third");
        let long = format!("a name {}: give another", "é".repeat(20_000));
        let line = one_line(&long);
        assert!(line.starts_with("a name éé") && line.ends_with("éé: give another") && line.chars().count() < 1700);
        assert_eq!(one_line(&"é".repeat(1600)), "é".repeat(1600));
    }
}
