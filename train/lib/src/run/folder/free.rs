//! Free names for new folders.

use std::path::{Path, PathBuf};

/// The default path of a run with this name: `runs/<name>`.
pub fn default_path(name: &str) -> PathBuf {
    Path::new(ember_decoding::run_folder::RUNS).join(name)
}

/// The path, or the first of `<path>-2`, `-3`, ... that does not exist.
pub(super) fn first_free(path: PathBuf) -> PathBuf {
    let numbered = |n: u64| {
        let mut numbered = path.clone().into_os_string();
        numbered.push(format!("-{n}"));
        PathBuf::from(numbered)
    };
    let candidate = |n: u64| if n == 1 { path.clone() } else { numbered(n) };
    let free = (1..).map(candidate).find(|candidate| !candidate.exists());
    free.unwrap_or(path)
}
