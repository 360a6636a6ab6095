//! The user's cache, for files that can be made again.

use std::{env, path::PathBuf};

/// The programs' folder in it: `ember` in `$XDG_CACHE_HOME`, else in `~/.cache`; `None` if neither is
/// known. Relative paths in these variables are ignored, as XDG's rules say.
pub fn of_user() -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || set("HOME").or_else(|| set("USERPROFILE")).map(|home| home.join(".cache"));
    Some(set("XDG_CACHE_HOME").or_else(home)?.join("ember"))
}
