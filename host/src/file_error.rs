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

/// An error with its causes, in [one line](one_line): "cannot read a.txt: permission denied".
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    one_line(&joined(causes.map(ToString::to_string)))
}

/// An error's words and those of its causes, with colons between them. What only repeats the end of
/// the words before it is left out: some libraries say a cause, and hand it on too.
pub fn joined(causes: impl Iterator<Item = String>) -> String {
    let join = |line: String, cause: String| match line.ends_with(&cause) {
        true => line,
        false => format!("{line}: {cause}"),
    };
    causes.reduce(join).unwrap_or_default()
}

/// How many characters of a longer line stay at its beginning, and at its end, where it says what to
/// do.
const LONGEST: [usize; 2] = [1200, 400];

/// A message in one line that people can read, whatever names out of a file stand in it: its lines
/// joined, and the middle of a long one left out.
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
