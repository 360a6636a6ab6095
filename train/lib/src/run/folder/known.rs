//! By what a folder is known for a run's, also where it has not begun or is half removed.

use std::fs::{self, File};
use std::path::Path;

use ember_data::prepare::Dataset;
use ember_decoding::run_folder::CHECKPOINTS;
use ember_host::file_error::{At, FileError};
use ember_host::files::{UNFINISHED, sync_folder};

/// Where the prepared tokens are.
pub const DATA: &str = "data";
/// The resolved configuration.
pub const CONFIG: &str = "config.toml";
/// The log of numbers.
pub const METRICS: &str = "metrics.jsonl";
/// The file whose lock the process that trains the run holds.
pub const LOCK: &str = ".lock";
/// What `config.toml` is called from the moment on at which a run is being removed.
pub const REMOVING: &str = ".removing";

/// Whether a run was begun in this folder: also where it ended before its first step, and where it
/// is half removed.
pub fn is_run(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).exists();
    let begun = has(CONFIG) && (has(METRICS) || has(CHECKPOINTS) || has(LOCK));
    begun || is_not_begun(folder) || has(REMOVING)
}

/// Whether a run was to be in this folder that ended before its configuration was written.
pub fn is_not_begun(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).exists();
    !has(CONFIG) && !has(REMOVING) && has(LOCK) && has_own_data(folder)
}

/// Whether what is called [`DATA`] in this folder is tokens that a run left, whole or not: others have
/// such a folder too, with files of the same names. Where a removal was cut short it was looked at
/// before, and what told what it is may be gone.
pub fn has_own_data(folder: &Path) -> bool {
    let data = folder.join(DATA);
    Dataset::is_in(&data) || is_empty(&data) || folder.join(REMOVING).exists()
}

/// Whether a folder is there, and nothing in it but what was never finished.
fn is_empty(folder: &Path) -> bool {
    let is_unfinished = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(UNFINISHED);
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().all(is_unfinished))
}

/// Lets a run be one that is being removed, before anything of it goes: wherever that is cut short,
/// what is left is no run to go on with, and is known for one that can be removed again.
///
/// # Errors
/// When its configuration cannot be renamed.
pub fn mark_removed(run: &Path) -> Result<(), FileError> {
    let [config, removing] = [CONFIG, REMOVING].map(|name| run.join(name));
    if config.exists() {
        fs::rename(&config, &removing).at("cannot rename", &config)?;
    } else if !removing.exists() {
        let _ = File::create(&removing); // where the disk has no room for it, the removal makes some
    }
    let _ = sync_folder(run); // before anything else goes: a power cut could undo the renaming
    Ok(())
}
