//! A run's folder: where each file is, who owns it, and how a new one gets its name.
//!
//! ```text
//! config.toml      every key of the run, and which checkpoint it began from (`init`)
//! metrics.jsonl    the log of numbers: docs/metrics.md
//! loss.svg         the picture of the losses; `compare RUN` draws it again
//! samples/         what the model wrote while it learned: step-00000500.txt for people, samples.jsonl for programs
//! tensorboard/     event files, with `tensorboard = true`
//! data/            the prepared tokens, unless they are prepared elsewhere
//! reports/         what a batch was like whose loss or gradient was not finite
//! checkpoints/     what is resumed from and generated with
//! latest, best     which of them
//! ```

mod checkpoints;
mod free;
mod known;
mod lock;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ember_decoding::run_folder::namesake;
use ember_host::files::{make_folder, name_of, write_text};

use crate::config::TrainConfig;
use crate::error::{FolderError, Result};
use free::first_free;
use known::is_not_begun;

pub(super) use checkpoints::{DAMAGED, SUPERSEDED};
pub use checkpoints::{Pointer, checkpoint_name, run_of};
pub use ember_decoding::run_folder::{AVERAGE, BEST, CHECKPOINTS, LATEST, step_of};
pub use free::default_path;
pub use known::{CONFIG, DATA, METRICS};
pub(super) use known::{LOCK, REMOVING, has_own_data, is_run, mark_removed};

/// The picture of the losses.
pub const PLOT: &str = "loss.svg";
/// What the model wrote while it learned.
pub const SAMPLES: &str = "samples";
/// Event files for TensorBoard, where they are wanted.
pub const TENSORBOARD: &str = "tensorboard";
/// What the name of an event file begins with; the time at which it was made follows.
pub(super) const EVENTS: &str = "events.out.tfevents.";
/// Reports on batches whose loss or gradient was not finite.
pub(super) const REPORTS: &str = "reports";
/// What the name of a report begins with; the step follows.
pub(super) const NOT_FINITE: &str = "nonfinite-step-";
/// All that was sampled, for programs, in [`SAMPLES`].
pub const SAMPLES_LOG: &str = "samples.jsonl";
/// How long the lock is waited for that another process has: who looks at a run has it for a moment.
const LOOKED_AT: Duration = Duration::from_millis(200);
/// So many names are tried, each of which may be taken by another process meanwhile.
const TRIES_FOR_A_NAME: usize = 64;

/// A run folder that this process owns until it is dropped, or only reads beside the process that
/// does.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The folder and those around it that this process made, innermost first; none where something
    /// was in it.
    made: Vec<PathBuf>,
    /// Whether this process made the file of the lock, too.
    made_lock: bool,
    /// Whether tokens, of whatever kind, lay in the folder before this process had it.
    had_data: bool,
    /// Held for its lock, which the system releases when the process ends, however it ends.
    lock: Option<File>,
}

impl RunFolder {
    /// Makes a folder for a new run and takes its lock.
    ///
    /// # Errors
    /// When the folder holds a run already, or anything that no run left in it, when it cannot be
    /// made, or another process uses it.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        Self::create_within(path, LOOKED_AT)
    }

    /// As [`Self::create`], which waits so long for another process that has the lock.
    fn create_within(path: &Path, most: Duration) -> Result<Self, FolderError> {
        let path_buf = || path.to_owned();
        if path.exists() && !path.is_dir() {
            return Err(FolderError::IsFile(path_buf()));
        }
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let mut made: Vec<PathBuf> = path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        // Made before it is looked at: what `new/..` names is there only when `new` is.
        make_folder(path).map_err(|source| FolderError::Create { path: path_buf(), source })?;
        if path.join(CONFIG).exists() || path.join(CHECKPOINTS).exists() {
            let error = if lost_config(path) { FolderError::LostConfig } else { FolderError::HoldsRun };
            return Err(error(path_buf()));
        }
        // A run that ended before it began leaves its data, and names with a leading dot are
        // nobody's work.
        let foreign = |name: &String| name != DATA && !name.starts_with('.');
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        if let Some(name) = names.filter(foreign).min() {
            return Err(FolderError::Foreign { path: path_buf(), name });
        }
        if !fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) {
            made.clear();
        }
        let had_data = path.join(DATA).exists();
        let locked = Self::lock_within(path, most).inspect_err(|_| remove_empty(&made))?;
        Ok(Self { made, had_data, ..locked })
    }

    /// Makes a folder for a new run and takes its lock: `path`, or the first of `<path>-2`, `-3`, ...
    /// that is not there yet. Of runs that are started at once each gets one of its own.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create_free(path: &Path) -> Result<Self, FolderError> {
        for _ in 1..TRIES_FOR_A_NAME {
            match Self::create_within(&first_free(path.to_owned()), Duration::ZERO) {
                // Another process took the name since it was looked at; nobody waits for its run.
                Err(FolderError::InUse(_) | FolderError::HoldsRun(_)) => {}
                made => return made,
            }
        }
        Self::create(&first_free(path.to_owned()))
    }

    /// Removes the folder of a run that did not begin, where this process made it and nothing was
    /// in it, and those made around it that nobody else uses by now: nothing is left where nothing
    /// comes of it. Somebody else's folder is no more a run's than it was before.
    pub fn forget(&self) {
        let Some((run, around)) = self.made.split_first() else { return self.give_back() };
        // First what is known for a run's only beside its configuration, and what tells that it is being
        // removed last: a kill or a power cut on the way leaves what can be resumed or removed.
        for records in [TENSORBOARD, SAMPLES] {
            let _ = fs::remove_dir_all(run.join(records));
        }
        let _ = fs::remove_file(run.join(METRICS));
        let _ = mark_removed(run);
        let _ = fs::remove_dir_all(run.join(DATA));
        let _ = fs::remove_dir_all(run);
        remove_empty(around);
    }

    /// Removes what this process made in a folder that was there: the file of the lock, where nothing
    /// else of the run is left, which would be known by it.
    fn give_back(&self) {
        let is_alone = !self.file(CONFIG).exists() && (self.had_data || !self.file(DATA).exists());
        if is_alone {
            self.remove_own_lock();
        }
    }

    /// Removes the file of the lock where this process made it, in a folder that is no run's.
    pub(super) fn remove_own_lock(&self) {
        if self.made_lock {
            let _ = fs::remove_file(self.file(LOCK));
        }
    }

    /// Opens the folder of a run that was begun, and takes its lock.
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
                None => FolderError::NoRun(path),
            });
        }
        Self::lock(path)
    }

    /// The folder of a run that another process of the group owns: to read from.
    pub fn owned_elsewhere(path: &Path) -> Self {
        Self { path: path.to_owned(), made: Vec::new(), made_lock: false, had_data: false, lock: None }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file or folder of this name in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The name of the run: the folder's own.
    pub fn name(&self) -> String {
        name_of(&self.path).unwrap_or_else(|| "run".to_owned())
    }

    /// Writes the resolved configuration, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written, or the folder is no longer there.
    pub fn write_config(&self, config: &TrainConfig) -> Result<()> {
        self.ensure_there()?;
        Ok(write_text(&self.file(CONFIG), &config.to_toml()?)?)
    }

    /// Where the text sampled at `step` is written, for people.
    pub fn sample(&self, step: u64) -> PathBuf {
        self.file(SAMPLES).join(format!("step-{step:08}.txt"))
    }

    /// Where the report on the batch is written that gave `step` a loss or gradient that is not
    /// finite; `attempt` counts from 1 where several did.
    pub fn not_finite_report(&self, step: u64, attempt: u64) -> PathBuf {
        let again = if attempt > 1 { format!("-{attempt}") } else { String::new() };
        self.file(REPORTS).join(format!("{NOT_FINITE}{step:08}{again}.json"))
    }
}

/// Removes those of some folders that nobody has put anything into, innermost first.
fn remove_empty(folders: &[PathBuf]) {
    for folder in folders {
        let _ = fs::remove_dir(folder);
    }
}

/// The newest step that is saved of the run in a folder, whoever uses it.
pub fn newest_step(run: &Path) -> Option<u64> {
    RunFolder::owned_elsewhere(run).saved().first().and_then(|checkpoint| step_of(checkpoint))
}

/// Whether steps are saved of the run in a folder, which nobody removes, and its configuration is gone.
fn lost_config(run: &Path) -> bool {
    !run.join(CONFIG).is_file() && newest_step(run).is_some() && !run.join(REMOVING).exists()
}

#[cfg(test)]
mod tests;
