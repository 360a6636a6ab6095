//! The checkpoints in a run's folder: where each is, which of them the pointers name, and which are
//! removed or put aside.

use std::fs;
use std::path::{Path, PathBuf};

use ember_decoding::run_folder::{AVERAGE, BEST, CHECKPOINTS, LATEST, step_of};
use ember_host::file_error::{At, FileError};
use ember_host::files::{UNFINISHED, name_of, sync_folder, write_text};

use super::{CONFIG, RunFolder, free::first_free};
use crate::error::FolderError;

/// What the name of a checkpoint begins with whose steps were taken again.
pub const SUPERSEDED: &str = "superseded";
/// What the name of a checkpoint begins with that the disk has damaged.
pub const DAMAGED: &str = "damaged";

/// The two pointers of a run folder: text files that name a folder in [`CHECKPOINTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The last checkpoint.
    Latest,
    /// The checkpoint with the lowest validation loss.
    Best,
}

impl RunFolder {
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
        // A pointer whose checkpoint was taken away by hand keeps nothing.
        let pointed = [Pointer::Latest, Pointer::Best].map(|pointer| self.pointed(pointer).unwrap_or(None));
        let latest = pointed[0].as_deref().and_then(step_of);
        // All are renamed, and the disk has their new names, before any is emptied: so neither a kill
        // nor a power cut leaves half a checkpoint under the name of a whole one.
        for checkpoint in self.saved().into_iter().skip(keep as usize) {
            let is_best = best.is_some() && step_of(&checkpoint) == best;
            if !is_best && !pointed.iter().flatten().any(|kept| *kept == checkpoint) {
                let _ = fs::rename(&checkpoint, self.unfinished(step_of(&checkpoint).unwrap_or_default()));
            }
        }
        let _ = sync_folder(&self.checkpoints());
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
    /// one; returns where it is now. `best` no longer names it; `latest` is the caller's to set. One
    /// that is damaged leaves those of the same step that were damaged before where they are, and is
    /// numbered.
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
        let newer = self.saved().into_iter().filter(|saved| step_of(saved) > Some(step));
        newer.map(|saved| Ok((saved.clone(), self.put_aside(&saved, SUPERSEDED)?))).collect()
    }
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
