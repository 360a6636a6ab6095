//! Recognises a run's folder, also of a run that has not begun or is partly removed.

use std::fs::{self, File};
use std::path::Path;

use ember_data::prepare::Dataset;
use ember_decoding::run_folder::CHECKPOINTS;
use ember_host::file_error::{At, FileError};
use ember_host::files::{UNFINISHED, sync_folder};

/// The folder of prepared tokens.
pub const DATA: &str = "data";
/// The resolved configuration.
pub const CONFIG: &str = "config.toml";
/// The log of numbers.
pub const METRICS: &str = "metrics.jsonl";
/// The lock file, held by the process that trains the run.
pub const LOCK: &str = ".lock";
/// The name of `config.toml` while a run is being removed.
pub const REMOVING: &str = ".removing";

/// Whether this folder is a run's, even if the run ended before its first step or is partly
/// removed.
pub fn is_run(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).exists();
    let begun = has(CONFIG) && (has(METRICS) || has(CHECKPOINTS) || has(LOCK));
    begun || is_not_begun(folder) || has(REMOVING)
}

/// Whether a run in this folder ended before its configuration was written.
pub fn is_not_begun(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).exists();
    !has(CONFIG) && !has(REMOVING) && has(LOCK) && has_own_data(folder)
}

/// Whether the folder [`DATA`] in this folder holds a run's tokens, complete or not: other programs
/// use that name too. If a removal was interrupted, it was checked before, and the files that
/// identify it may be gone.
pub fn has_own_data(folder: &Path) -> bool {
    let data = folder.join(DATA);
    Dataset::is_in(&data) || is_empty(&data) || folder.join(REMOVING).exists()
}

/// Whether a folder exists and holds only unfinished files.
fn is_empty(folder: &Path) -> bool {
    let is_unfinished = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(UNFINISHED);
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().all(is_unfinished))
}

/// Marks a run as being removed, before any file is deleted: if the removal is interrupted, the
/// rest cannot be resumed, but is recognised and can be removed.
///
/// # Errors
/// When its configuration cannot be renamed.
pub fn mark_removed(run: &Path) -> Result<(), FileError> {
    let [config, removing] = [CONFIG, REMOVING].map(|name| run.join(name));
    if config.exists() {
        fs::rename(&config, &removing).at("cannot rename", &config)?;
    } else if !removing.exists() {
        let _ = File::create(&removing); // ignore a full disk: the removal frees space
    }
    let _ = sync_folder(run); // before files are deleted: a power cut could undo the renaming
    Ok(())
}
