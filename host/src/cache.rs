//! The user's cache, for files that can be made again.

use std::{env, path::PathBuf};

/// The programs' folder in it: `ember` in `$XDG_CACHE_HOME`, else in `~/.cache`; `None` if neither is
/// known. Relative paths in these variables are ignored, as XDG's rules say.
pub fn of_user() -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || set("HOME").or_else(|| set("USERPROFILE")).map(|home| home.join(".cache"));
    Some(set("XDG_CACHE_HOME").or_else(home)?.join("ember"))
}

/// As [`of_user`], else a folder with other temporary files. Others can write there, so it is only
/// for what decides no result.
pub fn folder() -> PathBuf {
    of_user().unwrap_or_else(|| env::temp_dir().join("ember"))
}
