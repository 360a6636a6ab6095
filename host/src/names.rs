//! Names for people: files and folders without the folders around them, which are private, as a
//! home folder is. Pages and pictures, which may be sent to others, have no other names.

use crate::files::name_of;
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
