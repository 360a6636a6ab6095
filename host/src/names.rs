//! Names for people: files and folders without the folders around them, which are private, as a
//! home folder is; where several share a name, with the folders that tell them apart. Pages and
//! pictures, which may be sent to others, have no other names.

use crate::files::name_of;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The last part of a path, whichever system wrote it; of a path without one, such as `/` and `.`,
/// all of it.
pub fn last_part(path: &str) -> &str {
    path.rsplit(['/', '\\']).find(|part| !matches!(*part, "" | ".")).unwrap_or(path)
}

/// The name of a file or folder, also if its path ends in no name, as `.` and `..` do; `None` if it
/// then does not exist, or has none.
pub fn name_of_existing(path: &Path) -> Option<String> {
    name_of(path).or_else(|| name_of(&path.canonicalize().ok()?))
}

/// Names that tell several paths apart: the last part of each; of paths that share it, what follows
/// the folders that all of these are in.
pub struct Names<'a>(BTreeMap<&'a str, String>);

impl<'a> Names<'a> {
    /// Names for these paths.
    pub fn new(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut alike: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for path in paths {
            alike.entry(last_part(path)).or_default().insert(path);
        }
        Self(alike.into_values().filter(|alike| alike.len() > 1).flat_map(apart).collect())
    }

    /// The name of one of the paths.
    pub fn of<'n>(&'n self, path: &'n str) -> &'n str {
        self.0.get(path).map_or_else(|| last_part(path), String::as_str)
    }

    /// A line about one of the paths, with the name in place of the path; the name alone if the
    /// line lacks the path: if it was cut, it may have a part.
    pub fn in_line(&self, line: &str, path: &str) -> String {
        match line.contains(path) {
            true => line.replace(path, self.of(path)),
            false => self.of(path).to_owned(),
        }
    }
}

/// Paths that share their last part, each with a name of its own. They are numbered if full paths
/// are among them and no folder is common to all: what follows it would be a full path.
fn apart(alike: BTreeSet<&str>) -> Vec<(&str, String)> {
    let split: Vec<Vec<&str>> = alike.iter().map(|&path| parts(path)).collect();
    let most = split.iter().map(Vec::len).min().unwrap_or(1) - 1;
    let common = (0..most).take_while(|&at| split.iter().all(|path| path[at] == split[0][at])).count();
    // A root is the nothing before the first `/`, a drive, or what Windows writes before one.
    let is_root = |part: &&str| matches!(*part, "" | "?") || part.ends_with(':');
    let is_full = split[0][..common].iter().all(is_root) && split.iter().any(|path| is_root(&path[0]));
    let name = |((path, parts), number): ((_, &Vec<&str>), usize)| match is_full {
        true => (path, format!("{} ({number})", last_part(path))),
        false => (path, parts[common..].join("/")),
    };
    alike.into_iter().zip(&split).zip(1..).map(name).collect()
}

fn parts(path: &str) -> Vec<&str> {
    let is_part = |&(at, part): &(usize, &str)| at == 0 || !matches!(part, "" | ".");
    path.split(['/', '\\']).enumerate().filter(is_part).map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_part_of_a_path_has_no_folders_whichever_system_wrote_it() {
        for (path, expected) in [
            ("/home/ana/diary.txt", "diary.txt"),
            (r"C:\Users\ana\diary.txt", "diary.txt"),
            ("letters.zip/to Julia.docx", "to Julia.docx"),
            ("/home/ana/letters/./", "letters"),
            ("/home/ana/letters/..", ".."),
            ("standard input", "standard input"),
            ("/", "/"),
            ("./", "./"),
        ] {
            assert_eq!(last_part(path), expected, "{path}");
        }
    }

    #[test]
    fn names_tell_paths_apart_and_show_no_folder_that_all_are_in() {
        for (paths, expected) in [
            (["/home/ana/diary.txt", "/home/ana/old/notes.txt"], ["diary.txt", "notes.txt"]),
            (["/home/ana/notes.txt", "/home/ana/old/notes.txt"], ["notes.txt", "old/notes.txt"]),
            (["mine/2023/jan/notes.txt", "mine/2024/jan/notes.txt"], ["2023/jan/notes.txt", "2024/jan/notes.txt"]),
            ([r"C:\Users\ana\notes.txt", r"C:\Users\ana\old\notes.txt"], ["notes.txt", "old/notes.txt"]),
            (["new/notes.txt", "old/notes.txt"], ["new/notes.txt", "old/notes.txt"]),
            (["notes", "notes/notes"], ["notes", "notes/notes"]),
            (["/home/ana/notes.txt", "old/notes.txt"], ["notes.txt (1)", "notes.txt (2)"]),
            (["/home/ana/notes.txt", "/mnt/notes.txt"], ["notes.txt (1)", "notes.txt (2)"]),
            ([r"\\?\C:\ana\notes.txt", r"\\?\D:\notes.txt"], ["notes.txt (1)", "notes.txt (2)"]),
        ] {
            let names = Names::new(paths);
            assert_eq!(paths.map(|path| names.of(path)), expected, "{paths:?}");
        }
    }

    #[test]
    fn a_line_has_the_name_in_place_of_the_path() {
        let path = "/home/ana/letters";
        let names = Names::new([path]);
        let line = names.in_line("cannot read /home/ana/letters/old: permission denied", path);
        assert_eq!(line, "cannot read letters/old: permission denied");
        assert_eq!(names.in_line("cannot read /home/ana/lett … denied", path), "letters");
    }

    #[test]
    fn what_exists_has_a_name_however_its_path_ends() {
        let place = tempfile::tempdir().unwrap();
        let letters = place.path().join("letters");
        std::fs::create_dir_all(letters.join("old")).unwrap();
        for end in ["", ".", "old/.."] {
            assert_eq!(name_of_existing(&letters.join(end)).as_deref(), Some("letters"), "{end}");
        }
        assert_eq!(name_of_existing(&letters.join("new.txt")).as_deref(), Some("new.txt"));
        assert_eq!(name_of_existing(Path::new("/no/such/..")), None);
    }
}
