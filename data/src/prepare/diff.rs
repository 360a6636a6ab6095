//! The changes that cleaning makes, document by document, as a diff.

use super::{documents::Documents, error::Error, options::PrepareOptions};
use crate::source::{self, Clean, Input, Listing, ReadOptions, TextFile};
use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::udiff::UnifiedHunkHeader;
use std::{fmt::Write, sync::atomic::AtomicU64, time::Duration, time::Instant};

/// A file with more text than this is refused, which bounds memory.
const MAX_BYTES: usize = 128 << 20;

/// Time limit for matching lines; lines not matched by then are shown as replaced.
const LONGEST_MATCHING: Duration = Duration::from_secs(5);

/// Unchanged lines shown before and after a change.
const CONTEXT: usize = 3;

/// Calls `show` for every document that cleaning changes, with a unified diff that names its file
/// and its number there. Skips unreadable files in folders: preparing them reports why.
///
/// # Errors
/// As [`super::prepare`], of the reading; and for a file with too much text.
pub fn diff(options: &PrepareOptions, show: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let mut listing = Listing::new(&options.reading);
    for input in &options.inputs {
        match input {
            Input::Path(path) => listing.add_path(path)?,
            _ => return Err(Error::unusable("cleaning changes are shown only for files; name files or folders")),
        }
    }
    let uncleaned = ReadOptions { clean: Clean::Off, ..options.reading.clone() };
    for file in &listing.files {
        match documents(file, &uncleaned).and_then(|before| Ok((before, documents(file, &options.reading)?))) {
            Ok((before, after)) => {
                for (number, (before, after)) in (1..).zip(before.iter().zip(&after)) {
                    if before != after {
                        show(&of_document(&format!("{}, document {number}", file.name), before, after));
                    }
                }
            }
            Err(Error::Source(_)) if file.found => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn of_document(name: &str, before: &str, after: &str) -> String {
    let [before, after] = [before, after].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    // Only Myers' algorithm: the library's own `TextDiff` links all its algorithms, 0.8 MB of code.
    let mut changes = Compact::new(Replace::new(Capture::new()), &before, &after);
    let until = Some(Instant::now() + LONGEST_MATCHING);
    let Ok(()) = myers::diff_deadline(&mut changes, &before, 0..before.len(), &after, 0..after.len(), until);
    let mut diff = format!("--- {name}\n+++ cleaned\n");
    for hunk in changes.into_inner().into_inner().into_grouped_ops(CONTEXT) {
        let _ = writeln!(diff, "{}", UnifiedHunkHeader::new(&hunk));
        for line in hunk.iter().flat_map(|change| change.iter_changes(&before, &after)) {
            let end = if line.value().ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
            let _ = write!(diff, "{}{}{end}", line.tag(), line.value());
        }
    }
    diff
}

fn documents(file: &TextFile, options: &ReadOptions) -> Result<Vec<String>, Error> {
    let mut documents = Documents::default();
    source::read::<Error>(file, options, &AtomicU64::new(0), &mut |event| {
        if documents.add(event) > MAX_BYTES {
            let what = format!(
                "{} has more than {} MiB of text, too much to show the changes; name a smaller part of it",
                file.name,
                MAX_BYTES >> 20
            );
            return Err(Error::unusable(what));
        }
        Ok(())
    })?;
    Ok(documents.into_all())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_changed_document_is_shown_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "same\n<|endoftext|>one\r\ntwo \nthree\n").unwrap();
        let mut options = PrepareOptions { inputs: vec![Input::Path(path.clone())], ..PrepareOptions::default() };
        let shown = |options: &PrepareOptions| {
            let mut all = String::new();
            diff(options, &mut |text| all.push_str(text)).unwrap();
            all
        };
        assert_eq!(shown(&options), "", "plain text stays as it is");
        options.reading.clean = Clean::All;
        let name = path.display();
        let expected =
            format!("--- {name}, document 2\n+++ cleaned\n@@ -1,3 +1,3 @@\n-one\r\n-two \n+one\n+two\n three\n");
        assert_eq!(shown(&options), expected);
        std::fs::write(&path, "one \r\ntwo").unwrap();
        let expected = format!(
            "--- {name}, document 1\n+++ cleaned\n@@ -1,2 +1,2 @@\n-one \r\n+one\n two\n\\ No newline at end of file\n"
        );
        assert_eq!(shown(&options), expected);
    }
}
