//! What cleaning changes, document by document, as a diff to look at.

use super::{error::Error, options::PrepareOptions};
use crate::source::{self, Clean, Event, Input, Listing, ReadOptions, TextFile};
use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};
use std::sync::atomic::AtomicU64;

/// The most text of a file that is compared, which bounds the memory that it takes.
const MOST_BYTES: usize = 128 << 20;

/// Hands every document that cleaning changes to `show`, as a unified diff that names its file and
/// its number there. Files in folders that cannot be read are passed over: preparing them says why.
///
/// # Errors
/// As [`super::prepare`], of the reading; and for a file with too much text.
pub fn diff(options: &PrepareOptions, show: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let mut listing = Listing::new(&options.reading);
    for input in &options.inputs {
        match input {
            Input::Path(path) => listing.add_path(path)?,
            _ => return Err(Error::unusable("what cleaning changes is shown of files alone; name files or folders")),
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
    let lines = InternedInput::new(before, after);
    let mut diff = Diff::compute(Algorithm::Histogram, &lines);
    diff.postprocess_lines(&lines);
    let printer = BasicLineDiffPrinter(&lines.interner);
    format!("--- {name}\n+++ cleaned\n{}", diff.unified_diff(&printer, UnifiedDiffConfig::default(), &lines))
}

fn documents(file: &TextFile, options: &ReadOptions) -> Result<Vec<String>, Error> {
    let (mut documents, mut document, mut bytes) = (Vec::new(), String::new(), 0);
    source::read::<Error>(file, options, &AtomicU64::new(0), &mut |event| {
        match event {
            Event::Title(_) | Event::Dated(_) => {}
            Event::Text(text) => {
                bytes += text.len();
                if bytes > MOST_BYTES {
                    let what =
                        format!("{} has more than {} MiB of text; show a part of it", file.name, MOST_BYTES >> 20);
                    return Err(Error::unusable(what));
                }
                document.push_str(text);
            }
            Event::EndOfDocument => documents.push(std::mem::take(&mut document)),
        }
        Ok(())
    })?;
    Ok(documents)
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
    }
}
