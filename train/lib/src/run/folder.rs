//! A run's folder: its files, its lock, and the name of a new one.
//!
//! ```text
//! config.toml      every key of the run, and which checkpoint it began from (`init`)
//! metrics.jsonl    the log of numbers: docs/metrics.md
//! loss.svg         the picture of the losses; `compare RUN` draws it again
//! samples/         texts sampled during training: step-00000500.txt for people, samples.jsonl for programs
//! tensorboard/     event files, with `tensorboard = true`
//! data/            the prepared tokens, unless they are prepared elsewhere
//! reports/         reports on batches whose loss or gradient was not finite
//! checkpoints/     for resuming and for inference
//! latest, best     pointers to two of them
//! ```

mod checkpoints;
mod free;
mod known;
mod lock;

use std::path::{Path, PathBuf};
use std::{fs, io::ErrorKind, time::Duration};

use ember_decoding::run_folder::namesake;
use ember_host::file_error::At;
use ember_host::files::{make_folder, remove_unfinished, write_text};
use ember_host::names::name_of_existing;

use crate::config::TrainConfig;
use crate::error::{FolderError, Result};
use free::first_free;
use known::is_not_begun;
use lock::{LOCK_WAIT, Lock};

pub(super) use checkpoints::{DAMAGED, SUPERSEDED};
pub use checkpoints::{Pointer, checkpoint_name, run_of};
pub use ember_decoding::run_folder::{AVERAGE, BEST, CHECKPOINTS, LATEST, step_of};
pub use free::default_path;
pub use known::{CONFIG, DATA, METRICS};
pub(super) use known::{LOCK, REMOVING, has_own_data, is_run, mark_removed};

/// The picture of the losses.
pub const PLOT: &str = "loss.svg";
/// Texts sampled during training.
pub const SAMPLES: &str = "samples";
/// Event files for TensorBoard, if enabled.
pub const TENSORBOARD: &str = "tensorboard";
/// Prefix of an event file's name; the time of its creation follows.
pub(super) const EVENTS: &str = "events.out.tfevents.";
/// Reports on batches whose loss or gradient was not finite.
pub(super) const REPORTS: &str = "reports";
/// Prefix of a report's name; the step follows.
pub(super) const NOT_FINITE: &str = "nonfinite-step-";
/// All samples, for programs, in [`SAMPLES`].
pub const SAMPLES_LOG: &str = "samples.jsonl";
/// How many names to try; another process may take each one first.
const TRIES_FOR_A_NAME: usize = 64;

/// A run folder that this process owns until it is dropped, or that another process of its group
/// owns and this one only reads.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    before: Before,
    /// `None` if another process owns the folder.
    lock: Option<Lock>,
}

/// The folder before this process used it, to which [`RunFolder::forget`] returns it.
#[derive(Debug)]
enum Before {
    /// It did not exist: this process created it, and these of its parents, innermost first.
    Missing { parents: Vec<PathBuf> },
    /// It existed, or somebody else put files into it first; it held no run. `had_data`: whether it
    /// had a data folder, of whatever kind.
    NoRun { had_data: bool },
    /// This process did not create it for a new run: [`RunFolder::forget`] changes nothing.
    Untouched,
}

impl RunFolder {
    /// Creates a folder for a new run and takes its lock.
    ///
    /// # Errors
    /// When the folder holds a run already, or other files, when it cannot be created, or another
    /// process uses it.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        Self::create_within(path, LOCK_WAIT)
    }

    /// Like [`Self::create`], but waits at most `most` for another process that has the lock.
    fn create_within(path: &Path, most: Duration) -> Result<Self, FolderError> {
        if path.exists() && !path.is_dir() {
            return Err(FolderError::IsFile(path.to_owned()));
        }
        let is_missing = |folder: &Path| !folder.as_os_str().is_empty() && !folder.exists();
        let was_missing = is_missing(path);
        let parents = path.ancestors().skip(1);
        let missing_parents: Vec<PathBuf> =
            parents.take_while(|folder| is_missing(folder)).map(Path::to_owned).collect();
        // Created before it is checked: a path like `new/..` exists only when `new` does.
        make_folder(path).map_err(|source| FolderError::Create { path: path.to_owned(), source })?;
        refuse_contents(path)?;
        // Somebody else may have put a file there meanwhile: then the folder is not ours to remove.
        let is_ours = was_missing && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        let before = match is_ours {
            true => Before::Missing { parents: missing_parents },
            false => Before::NoRun { had_data: path.join(DATA).exists() },
        };
        let lock = Lock::take(path, most).inspect_err(|_| {
            if let Before::Missing { parents } = &before {
                let _ = fs::remove_dir(path);
                remove_empty(parents);
            }
        })?;
        let run = Self { path: path.to_owned(), before, lock: Some(lock) };
        run.tidy();
        Ok(run)
    }

    /// Creates a folder for a new run and takes its lock: `path`, or the first of `<path>-2`, `-3`,
    /// ... that does not exist. Runs that start at the same time get different folders.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create_free(path: &Path) -> Result<Self, FolderError> {
        for _ in 1..TRIES_FOR_A_NAME {
            match Self::create_within(&first_free(path.to_owned()), Duration::ZERO) {
                // Another process took the name since it was found free: try the next.
                Err(FolderError::InUse(_) | FolderError::HoldsRun(_)) => {}
                created => return created,
            }
        }
        Self::create(&first_free(path.to_owned()))
    }

    /// Undoes the creation of a run that did not begin. A folder that did not exist before is
    /// removed, with the parents that were created for it, except for what somebody else put there
    /// meanwhile. In a folder that existed and held no run, only the lock file that this process
    /// created is removed, and not even that if other files of the run are left, which the lock file
    /// identifies. A run that was opened stays as it is, and keeps its lock file. If the folder was
    /// moved, nothing is removed: another run may have begun at its path.
    pub fn forget(&self) {
        if self.ensure_there().is_err() {
            return;
        }
        match &self.before {
            Before::Missing { parents } => {
                self.remove_not_begun();
                remove_empty(parents);
            }
            Before::NoRun { had_data } => {
                let is_begun = self.file(CONFIG).exists();
                let data_is_new = !had_data && self.file(DATA).exists();
                if !is_begun && !data_is_new {
                    self.remove_own_lock();
                }
            }
            Before::Untouched => {}
        }
    }

    /// Removes the lock file if this process created it, in a folder that is no run.
    pub(super) fn remove_own_lock(&self) {
        if let Some(lock) = &self.lock {
            lock.remove_if_new(&self.path);
        }
    }

    /// Takes the lock of the folder in `path`, whatever is in it.
    ///
    /// # Errors
    /// When another process holds it, or it cannot be written.
    pub(super) fn lock(path: &Path) -> Result<Self, FolderError> {
        let lock = Lock::take(path, LOCK_WAIT)?;
        Ok(Self { path: path.to_owned(), before: Before::Untouched, lock: Some(lock) })
    }

    /// Checks that the path still leads to the folder whose lock this process holds. If the folder
    /// was moved or removed, writing would make a run that nobody can resume.
    ///
    /// # Errors
    /// When it leads elsewhere, or nowhere.
    pub(super) fn ensure_there(&self) -> Result<(), FolderError> {
        match &self.lock {
            Some(lock) if !lock.is_of(&self.path) => Err(FolderError::Gone(self.path.clone())),
            _ => Ok(()),
        }
    }

    /// Whether a process owns the run in `path` now. If none does, this holds a shared lock for a
    /// moment, in which another process that does not wait finds the folder in use.
    pub fn is_in_use(path: &Path) -> bool {
        Lock::is_taken(path)
    }

    /// Removes the unfinished files that a killed process left, in all folders of this one; those that
    /// cannot be removed only cost space. Only for a folder that is certainly a run's: another may
    /// hold runs that are being trained, with files that are being written.
    pub(super) fn tidy(&self) {
        let _ = remove_unfinished(&self.path);
    }

    /// Opens the folder of an existing run and takes its lock.
    ///
    /// # Errors
    /// When there is no run in it, or another process uses it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        if !path.join(CONFIG).is_file() {
            let path = path.to_owned();
            return Err(match namesake(&path) {
                _ if Self::is_in_use(&path) => FolderError::InUse(path),
                _ if lost_config(&path) => FolderError::LostConfig(path),
                _ if is_not_begun(&path) => FolderError::NotBegun(path),
                Some(run) => FolderError::DidYouMean { path, run },
                None => no_run(path),
            });
        }
        Self::lock(path)
    }

    /// The folder of a run without its lock, for reading.
    pub fn owned_elsewhere(path: &Path) -> Self {
        Self { path: path.to_owned(), before: Before::Untouched, lock: None }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file or folder of this name in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The name of the run: the folder's own, also if its path ends in none, as `.` does.
    pub fn name(&self) -> String {
        name_of_existing(&self.path).unwrap_or_else(|| "run".to_owned())
    }

    /// Writes the resolved configuration atomically.
    ///
    /// # Errors
    /// When the file cannot be written, or the folder is gone.
    pub fn write_config(&self, config: &TrainConfig) -> Result<()> {
        self.ensure_there()?;
        Ok(write_text(&self.file(CONFIG), &config.to_toml()?)?)
    }

    /// The text file of the samples at `step`.
    pub fn sample(&self, step: u64) -> PathBuf {
        self.file(SAMPLES).join(format!("step-{step:08}.txt"))
    }

    /// The report file of a batch of `step` with a loss or gradient that is not finite; a second
    /// batch of that step has `attempt` 2.
    pub fn not_finite_report(&self, step: u64, attempt: u64) -> PathBuf {
        let again = if attempt > 1 { format!("-{attempt}") } else { String::new() };
        self.file(REPORTS).join(format!("{NOT_FINITE}{step:08}{again}.json"))
    }
}

/// Refuses a folder for a new run that holds a run already, or other files. Allowed are the data of
/// a run that ended before it began, and hidden files.
fn refuse_contents(path: &Path) -> Result<(), FolderError> {
    if path.join(CONFIG).exists() || path.join(CHECKPOINTS).exists() {
        let error = if lost_config(path) { FolderError::LostConfig } else { FolderError::HoldsRun };
        return Err(error(path.to_owned()));
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.filter(|name| name != DATA && !name.starts_with('.')).min() {
        Some(name) => Err(FolderError::Foreign { path: path.to_owned(), name }),
        None => Ok(()),
    }
}

/// Removes those of the folders that are empty, innermost first.
fn remove_empty(folders: &[PathBuf]) {
    for folder in folders {
        let _ = fs::remove_dir(folder);
    }
}

/// The error of a folder that seems to hold no run: that it may not be read, if that is why.
pub(super) fn no_run(path: PathBuf) -> FolderError {
    match fs::read_dir(&path).at("cannot read", &path) {
        Err(error) if error.source.kind() == ErrorKind::PermissionDenied => error.into(),
        _ => FolderError::NoRun(path),
    }
}

/// The newest saved step of the run in a folder, even if another process uses it.
pub fn newest_step(run: &Path) -> Option<u64> {
    RunFolder::owned_elsewhere(run).saved().first().and_then(|checkpoint| step_of(checkpoint))
}

/// Whether the run in a folder has checkpoints but no configuration, and is not being removed.
fn lost_config(run: &Path) -> bool {
    !run.join(CONFIG).is_file() && newest_step(run).is_some() && !run.join(REMOVING).exists()
}

#[cfg(test)]
mod tests;
