//! Flags that name a file for a result. The file is checked when the command line is parsed, before
//! an hour of work whose result could not be written, or would overwrite a user's text.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use ember_host::{file_error::with_causes, output::check_writable};

/// The name that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// An HTML page.
pub fn page() -> impl TypedValueParser<Value = PathBuf> {
    file_of("html")
}

/// An SVG picture.
pub fn picture() -> impl TypedValueParser<Value = PathBuf> {
    file_of("svg")
}

/// A Markdown report.
pub fn report() -> impl TypedValueParser<Value = PathBuf> {
    file_of("md")
}

/// A TOML recipe.
pub fn recipe() -> impl TypedValueParser<Value = PathBuf> {
    file_of("toml")
}

/// A folder of several files, which cannot go to standard output.
pub fn folder() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == STANDARD_OUTPUT {
        true => Err("a folder cannot go to standard output; name a folder"),
        false => Ok(path),
    })
}

fn file_of(kind: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| match fault(&path, kind) {
        Some(fault) => Err(fault),
        None => Ok(path),
    })
}

/// Why a result of a kind cannot go to `path`, if it cannot. An existing file is replaced only if
/// its name has the kind's extension, or if it is empty: anything else may be the user's own
/// writing, named by mistake. Devices and pipes accept everything.
fn fault(path: &Path, kind: &str) -> Option<String> {
    if path.as_os_str() == STANDARD_OUTPUT {
        return None;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Some(format!("there is no folder {}; make it, or name another", folder.display()));
    }
    let is_of_kind = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    match path.metadata() {
        Ok(there) if there.is_dir() => Some("it is a folder; name a file".to_owned()),
        Ok(there) if there.is_file() && there.len() > 0 && !is_of_kind => {
            Some(format!("it exists and would be overwritten; name a new file, or one that ends in .{kind}"))
        }
        _ => check_writable(path).err().map(|error| format!("{}; name another", with_causes(&error))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_of_its_kind_or_empty_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, content) in [("a.txt", "a novel"), ("a.html", "a page"), ("A.HTML", "a page"), ("empty", "")] {
            std::fs::write(at(name), content).unwrap();
        }
        let refused = |name: &str| fault(&at(name), "html");
        assert!(["a.html", "A.HTML", "empty", "new", "new.txt"].iter().all(|name| refused(name).is_none()));
        assert!(refused("a.txt").unwrap().contains("would be overwritten"));
        assert!(refused("").unwrap().contains("it is a folder"));
        assert!(refused("none/a.html").unwrap().starts_with("there is no folder"));
        assert_eq!(fault(Path::new("a-new-name"), "html"), None);
        assert_eq!(fault(Path::new("/dev/null"), "html"), None);
        assert_eq!(fault(Path::new("-"), "html"), None);
    }
}
