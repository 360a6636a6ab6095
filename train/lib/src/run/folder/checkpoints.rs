//! The checkpoints in a run's folder: their paths, the pointers to them, and their removal or
//! renaming.

use std::fs;
use std::path::{Path, PathBuf};

use ember_decoding::run_folder::{AVERAGE, BEST, CHECKPOINTS, LATEST, step_of};
use ember_host::file_error::{At, FileError};
use ember_host::files::{UNFINISHED, name_of, read_text, sync_folder, write_text};

use super::{CONFIG, RunFolder, free::first_free};
use crate::error::FolderError;

/// Prefix of the name of a checkpoint whose steps were taken again.
pub const SUPERSEDED: &str = "superseded";
/// Prefix of the name of a damaged checkpoint.
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
    /// The folder of all checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// The folder of the checkpoint of `step`.
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
        let name = read_text(&file).at("cannot read", &file)?;
        let folder = self.checkpoints().join(name.trim());
        if !folder.is_dir() || step_of(&folder).is_none() {
            return Err(FolderError::DanglingPointer { pointer: file, folder });
        }
        Ok(Some(folder))
    }

    /// Points a pointer to the checkpoint of `step`. Syncs the folder first, so that the
    /// checkpoint's own name is on the disk before the pointer. A pointer that names it already is
    /// not written again: the disk may be full.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn point(&self, pointer: Pointer, step: u64) -> Result<(), FileError> {
        sync_folder(&self.checkpoints()).at("cannot write", self.checkpoints())?;
        let file = self.pointer(pointer);
        if self.names(pointer, step) {
            // The process that renamed it may have been killed before syncing.
            return sync_folder(&self.path).at("cannot write", &file);
        }
        write_text(&file, &format!("{}\n", checkpoint_name(step)))
    }

    /// Whether a pointer names the checkpoint of `step`.
    fn names(&self, pointer: Pointer, step: u64) -> bool {
        read_text(&self.pointer(pointer)).is_ok_and(|named| named.trim() == checkpoint_name(step))
    }

    /// Points `best` to the checkpoint of `step`, if that exists and `best` does not name it yet.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn point_best(&self, step: u64) -> Result<(), FileError> {
        if self.names(Pointer::Best, step) || !self.checkpoint(step).is_dir() {
            return Ok(());
        }
        self.point(Pointer::Best, step)
    }

    /// Every checkpoint, newest first. A folder with such a name is complete unless the disk
    /// damaged it, since checkpoints appear and disappear by renaming.
    pub fn saved(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.checkpoints()) else { return Vec::new() };
        let mut saved: Vec<_> = entries.flatten().filter_map(|e| Some((step_of(&e.path())?, e.path()))).collect();
        saved.sort();
        saved.into_iter().rev().map(|(_, path)| path).collect()
    }

    /// Removes every checkpoint except the newest `keep`, the `best` and those that the pointers
    /// name, and the remains of an interrupted save or removal. Ignores a folder that cannot be
    /// removed: it only costs space.
    pub fn prune(&self, keep: u64, best: Option<u64>) {
        // Ignores a pointer whose checkpoint was removed by hand.
        let pointed = [Pointer::Latest, Pointer::Best].map(|pointer| self.pointed(pointer).unwrap_or(None));
        let latest = pointed[0].as_deref().and_then(step_of);
        // All are renamed, and the new names are on the disk, before any is emptied: so neither a
        // kill nor a power cut leaves half a checkpoint under the name of a complete one.
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

    /// The folder of the checkpoint of `step` while it is written or removed.
    pub fn unfinished(&self, step: u64) -> PathBuf {
        self.checkpoints().join(format!("{UNFINISHED}{step}"))
    }

    /// Renames a checkpoint to `<why>-<name>`, so that its name is free; returns the new path.
    /// Removes `best` if that names it; the caller sets `latest`. A damaged checkpoint gets a
    /// number if the new name is taken; otherwise an older folder of the new name is removed.
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
        if read_text(&best).is_ok_and(|named| named.trim() == name) {
            fs::remove_file(&best).at("cannot remove", &best)?;
        }
        Ok(aside)
    }

    /// Renames every checkpoint after `step`, whose steps will be taken again; returns each old and
    /// new path. [`Self::prune`] removes them when a step as late is saved again.
    ///
    /// # Errors
    /// When one cannot be renamed.
    pub fn supersede_after(&self, step: u64) -> Result<Vec<(PathBuf, PathBuf)>, FileError> {
        let newer = self.saved().into_iter().filter(|saved| step_of(saved) > Some(step));
        newer.map(|saved| Ok((saved.clone(), self.put_aside(&saved, SUPERSEDED)?))).collect()
    }
}

/// The run of a checkpoint, if the checkpoint's folder is `RUN/checkpoints/step-N` or the folder of
/// the averaged weights in it.
pub fn run_of(checkpoint: &Path) -> Option<&Path> {
    let checkpoint = if checkpoint.ends_with(AVERAGE) { checkpoint.parent()? } else { checkpoint };
    checkpoint.parent().and_then(Path::parent).filter(|run| run.join(CONFIG).is_file())
}

/// The folder name of the checkpoint of `step`.
pub fn checkpoint_name(step: u64) -> String {
    format!("step-{step:08}")
}
