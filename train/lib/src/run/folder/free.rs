//! Names that no run has taken yet.

use std::path::{Path, PathBuf};

/// Where a run of this name is, unless somebody says where: `runs/<name>`.
pub fn default_path(name: &str) -> PathBuf {
    Path::new(ember_decoding::run_folder::RUNS).join(name)
}

/// The path, or the first of `<path>-2`, `-3`, ... that is not there yet.
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
