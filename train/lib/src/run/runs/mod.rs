//! Several runs: lists and summarises them, finds the best on each text, and removes a run.

mod removal;
mod summary;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Component, Path, PathBuf};

use ember_decoding::run_folder::RUNS;
use ember_host::file_error::At;

use crate::error::FolderError;
use crate::run::folder::{is_run, no_run};

use summary::text_folder;

pub use removal::Removal;
pub use summary::{Problem, State, Summary, configuration};

/// The runs in `folders`, each of them a run or a folder of runs; the one trained last comes first.
/// A run that is reached by several paths is listed once, by the shortest path that is not itself a
/// link.
///
/// # Errors
/// When a folder does not exist, cannot be read or holds no run.
pub fn list(folders: &[PathBuf]) -> Result<Vec<Summary>, FolderError> {
    let mut paths = Vec::new();
    for folder in folders {
        if !folder.is_dir() {
            return Err(FolderError::Missing(folder.clone()));
        }
        let before = paths.len();
        if is_run(folder) {
            paths.push(folder.clone());
        } else {
            let entries = fs::read_dir(folder).at("cannot read", folder)?;
            let within: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.extend(within.iter().filter(|path| is_run(path)).cloned());
            if paths.len() == before {
                return Err(no_runs(folder, within));
            }
        }
    }
    let canonical = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    paths.sort_by_cached_key(|path| (canonical(path), path.is_symlink(), path.as_os_str().len(), path.clone()));
    paths.dedup_by_key(|path| canonical(path));
    let mut runs: Vec<Summary> = paths.iter().map(|path| Summary::read(path)).collect();
    let lowest: Vec<bool> = runs.iter().map(|run| run.is_lowest_of(&runs)).collect();
    for (run, lowest) in runs.iter_mut().zip(lowest) {
        run.lowest = lowest;
    }
    runs.sort_by(|a, b| b.trained.total_cmp(&a.trained));
    Ok(runs)
}

/// The error of a folder in which no run is found: if none of the folders within may be read, that
/// may be why.
fn no_runs(folder: &Path, within: Vec<PathBuf>) -> FolderError {
    let errors: Vec<FolderError> = within.into_iter().filter(|path| path.is_dir()).map(no_run).collect();
    let are_unread = errors.iter().all(|error| !matches!(error, FolderError::NoRun(_)));
    let unread = errors.into_iter().next().filter(|_| are_unread);
    unread.unwrap_or_else(|| FolderError::NoRuns(folder.to_owned()))
}

/// The other runs in the same folders whose text lies in one of the `removed` runs, so that they
/// could not go on without it; each with the run that has its text.
pub fn learning_from(removed: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
    let canonical = |path: &Path| path.canonicalize().ok();
    let owners: Vec<(&PathBuf, PathBuf)> = removed.iter().filter_map(|path| Some((path, canonical(path)?))).collect();
    let mut folders: Vec<PathBuf> = removed.iter().map(|path| parent_folder(path)).collect();
    folders.sort();
    folders.dedup();
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut runs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_run(path)).collect();
    runs.retain(|run| canonical(run).is_some_and(|run| owners.iter().all(|(_, owner)| run != *owner)));
    runs.sort();
    let owner_of = |run: PathBuf| {
        let text = canonical(&text_folder(&run, &configuration(&run)))?;
        let (owner, _) = owners.iter().find(|(_, owner)| text.starts_with(owner))?;
        Some((run, (*owner).clone()))
    };
    runs.into_iter().filter_map(owner_of).collect()
}

/// The folder that contains a run.
fn parent_folder(run: &Path) -> PathBuf {
    match run.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        Some(_) if run.file_name().is_some() => PathBuf::from("."),
        _ => run.join(".."),
    }
}

/// The folder of the run called `name`: the one in `runs/`, else the path `name`. Anything but a
/// plain name, such as `./name` or `name/`, is a path.
///
/// # Errors
/// When it does not exist, or is no run.
pub fn named(name: &Path) -> Result<PathBuf, FolderError> {
    let is_name = matches!(name.components().next(), Some(Component::Normal(only)) if only == name.as_os_str());
    let in_runs = Path::new(RUNS).join(name);
    // Removes a separator at the end, after which a link would be followed.
    let path = if is_name && is_run(&in_runs) { in_runs } else { name.components().collect() };
    match path.is_dir() {
        _ if is_run(&path) => Ok(path),
        true => Err(no_run(path)),
        false => Err(FolderError::Missing(path)),
    }
}
