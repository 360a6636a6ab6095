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

mod free;
mod known;
mod lock;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ember_decoding::run_folder::namesake;
use ember_host::file_error::{At, FileError};
use ember_host::files::{UNFINISHED, make_folder, name_of, sync_folder, write_text};

use crate::config::TrainConfig;
use crate::error::{FolderError, Result};
use free::first_free;
use known::is_not_begun;

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

/// The two pointers of a run folder: text files that name a folder in [`CHECKPOINTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The last checkpoint.
    Latest,
    /// The checkpoint with the lowest validation loss.
    Best,
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

    /// Where all checkpoints are.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Where the checkpoint of `step` is.
    pub fn checkpoint(&self, step: u64) -> PathBuf {
        self.checkpoints().join(checkpoint_name(step))
    }

    fn pointer(&self, pointer: Pointer) -> PathBuf {
        self.path.join(match pointer {
            Pointer::Latest => LATEST,
            Pointer::Best => BEST,
        })
    }

    /// The checkpoint folder that a pointer names; `None` before the first.
    ///
    /// # Errors
    /// When the pointer cannot be read, or the folder it names is gone.
    pub fn pointed(&self, pointer: Pointer) -> Result<Option<PathBuf>, FolderError> {
        let file = self.pointer(pointer);
        if !file.exists() {
            return Ok(None);
        }
        let name = fs::read_to_string(&file).at("cannot read", &file)?;
        let folder = self.checkpoints().join(name.trim());
        if !folder.is_dir() || step_of(&folder).is_none() {
            return Err(FolderError::DanglingPointer { pointer: file, folder });
        }
        Ok(Some(folder))
    }

    /// Lets a pointer name the checkpoint of `step`, whose own name is on the disk first: who gave it
    /// may have been killed before it was.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn point(&self, pointer: Pointer, step: u64) -> Result<(), FileError> {
        sync_folder(&self.checkpoints()).at("cannot write", self.checkpoints())?;
        let file = self.pointer(pointer);
        write_text(&file, &format!("{}\n", checkpoint_name(step)))
    }

    /// Lets `best` name the checkpoint of `step`, where there is one and it does not name it yet.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn name_best(&self, step: u64) -> Result<(), FileError> {
        let named = fs::read_to_string(self.pointer(Pointer::Best)).unwrap_or_default();
        if named.trim() == checkpoint_name(step) || !self.checkpoint(step).is_dir() {
            return Ok(());
        }
        self.point(Pointer::Best, step)
    }

    /// Every checkpoint, newest first. A folder of that name is whole unless the disk damaged it:
    /// it appears and disappears by being renamed.
    pub fn saved(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.checkpoints()) else { return Vec::new() };
        let mut saved: Vec<_> = entries.flatten().filter_map(|e| Some((step_of(&e.path())?, e.path()))).collect();
        saved.sort();
        saved.into_iter().rev().map(|(_, path)| path).collect()
    }

    /// Removes every checkpoint but the newest `keep`, the `best` and those the pointers name, and
    /// what an interrupted save or removal left behind. A folder that cannot be removed is left
    /// alone: it costs space, nothing else.
    pub fn prune(&self, keep: u64, best: Option<u64>) {
        // What a pointer names that was taken away by hand needs no keeping.
        let pointed = [Pointer::Latest, Pointer::Best].map(|pointer| self.pointed(pointer).unwrap_or(None));
        let latest = pointed[0].as_deref().and_then(step_of);
        for checkpoint in self.saved().into_iter().skip(keep as usize) {
            let is_best = best.is_some() && step_of(&checkpoint) == best;
            if !is_best && !pointed.iter().flatten().any(|kept| *kept == checkpoint) {
                // Renamed first: a kill on the way leaves no half checkpoint under a whole one's
                // name.
                let _ = fs::rename(&checkpoint, self.unfinished(step_of(&checkpoint).unwrap_or_default()));
            }
        }
        let _ = sync_folder(&self.checkpoints()); // nor does a power cut
        let Ok(entries) = fs::read_dir(self.checkpoints()) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let superseded =
                name.strip_prefix(SUPERSEDED).and_then(|name| step_of(Path::new(name.trim_start_matches('-'))));
            if name.starts_with(UNFINISHED) || superseded.is_some_and(|step| Some(step) <= latest) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Where the checkpoint of `step` is while it is written or removed.
    pub fn unfinished(&self, step: u64) -> PathBuf {
        self.checkpoints().join(format!("{UNFINISHED}{step}"))
    }

    /// Puts a checkpoint aside, under its name behind `why`, so that the name is free for another
    /// one, and takes the pointers off it; returns where it is now. One that is damaged leaves those
    /// of the same step that were damaged before where they are, and is numbered.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn put_aside(&self, checkpoint: &Path, why: &str) -> Result<PathBuf, FileError> {
        let name = name_of(checkpoint).unwrap_or_default();
        let mut aside = self.checkpoints().join(format!("{why}-{name}"));
        if why == DAMAGED {
            aside = first_free(aside);
        } else {
            let _ = fs::remove_dir_all(&aside);
        }
        fs::rename(checkpoint, &aside).at("cannot rename", checkpoint)?;
        let best = self.pointer(Pointer::Best);
        if fs::read_to_string(&best).is_ok_and(|named| named.trim() == name) {
            fs::remove_file(&best).at("cannot remove", &best)?;
        }
        Ok(aside)
    }

    /// Puts every checkpoint after `step` aside, whose steps are about to be taken again; returns
    /// where each was and is. They go when a step as late is saved again ([`Self::prune`]).
    ///
    /// # Errors
    /// When one cannot be renamed.
    pub fn supersede_after(&self, step: u64) -> Result<Vec<(PathBuf, PathBuf)>, FileError> {
        let newer = self.saved().into_iter().filter(|saved| step_of(saved).is_some_and(|saved_step| saved_step > step));
        newer.map(|saved| Ok((saved.clone(), self.put_aside(&saved, SUPERSEDED)?))).collect()
    }

    /// Where the report on the batch is written that gave `step` a loss or gradient that is not
    /// finite; `attempt` counts from 1 where several did.
    pub fn not_finite_report(&self, step: u64, attempt: u64) -> PathBuf {
        let again = if attempt > 1 { format!("-{attempt}") } else { String::new() };
        self.path.join("reports").join(format!("nonfinite-step-{step:08}{again}.json"))
    }
}

/// Removes those of some folders that nobody has put anything into, innermost first.
fn remove_empty(folders: &[PathBuf]) {
    for folder in folders {
        let _ = fs::remove_dir(folder);
    }
}

/// What the name of a checkpoint begins with whose steps were taken again.
pub(super) const SUPERSEDED: &str = "superseded";
/// What the name of a checkpoint begins with that the disk has damaged.
pub(super) const DAMAGED: &str = "damaged";

/// The newest step that is saved of the run in a folder, whoever uses it.
pub fn newest_step(run: &Path) -> Option<u64> {
    RunFolder::owned_elsewhere(run).saved().first().and_then(|checkpoint| step_of(checkpoint))
}

/// Whether steps are saved of the run in a folder, which nobody removes, and its configuration is gone.
fn lost_config(run: &Path) -> bool {
    !run.join(CONFIG).is_file() && newest_step(run).is_some() && !run.join(REMOVING).exists()
}

/// The run that a checkpoint is of, where it is one: its folder is `RUN/checkpoints/step-N`, or that
/// of the averaged weights in it.
pub fn run_of(checkpoint: &Path) -> Option<&Path> {
    let checkpoint = if checkpoint.ends_with(AVERAGE) { checkpoint.parent()? } else { checkpoint };
    checkpoint.parent().and_then(Path::parent).filter(|run| run.join(CONFIG).is_file())
}

/// The folder name of the checkpoint of `step`.
pub fn checkpoint_name(step: u64) -> String {
    format!("step-{step:08}")
}

#[cfg(test)]
mod tests;
