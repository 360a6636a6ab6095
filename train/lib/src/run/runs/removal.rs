//! A run is removed: all that it left, and never anything else.

use std::fs;
use std::path::{Path, PathBuf};

use ember_host::file_error::{At, FileError};

use super::{contents::Contents, contents::REMOVING, is_run};
use crate::error::FolderError;
use crate::run::folder::{LOCK, RunFolder};

/// A run that can be removed. Its lock is held: nobody trains it meanwhile.
#[derive(Debug)]
pub struct Removal {
    run: RunFolder,
    contents: Contents,
}

impl Removal {
    /// Looks whether the run in `path` can be removed, and takes its lock. Nothing is removed yet.
    ///
    /// # Errors
    /// When it is no run, something lies in the folder that no run left there, or another process
    /// uses it.
    pub fn new(path: &Path) -> Result<Self, FolderError> {
        if !is_run(path) {
            return Err(FolderError::NoRun(path.to_owned()));
        }
        let refuse_others = |contents: Contents| match contents.foreign.first() {
            Some(file) => Err(FolderError::NotOnlyRun { path: path.to_owned(), file: file.clone() }),
            None => Ok(contents),
        };
        refuse_others(Contents::read(path)?)?; // before the lock, which is a file
        let run = RunFolder::lock(path)?;
        let contents = refuse_others(Contents::read(path)?)?;
        Ok(Self { run, contents })
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        self.run.path()
    }

    /// What is free again when it is gone.
    pub fn bytes(&self) -> u64 {
        self.contents.bytes
    }

    /// Removes the run. Its configuration is renamed first and goes last: wherever this is cut
    /// short, what is left is no run to go on with, and is known for one that can be removed again.
    ///
    /// # Errors
    /// When something cannot be removed, or was put into the folder meanwhile: the line names it.
    pub fn carry_out(self) -> Result<(), FileError> {
        let root = self.path().canonicalize().at("cannot find", self.path())?;
        let config = root.join("config.toml");
        if config.exists() {
            fs::rename(&config, root.join(REMOVING)).at("cannot rename", &config)?;
        }
        // The pointers and logs go before what they tell of.
        let mut files: Vec<&PathBuf> = self.contents.files.iter().filter(|file| !is_kept_to_the_last(file)).collect();
        files.sort_by_key(|file| file.iter().count());
        let remove_file = |path: PathBuf| fs::remove_file(&path).at("cannot remove", &path);
        let remove_folder = |path: PathBuf| fs::remove_dir(&path).at("cannot remove", &path);
        files.into_iter().try_for_each(|file| remove_file(root.join(file)))?;
        self.contents.folders.iter().try_for_each(|folder| remove_folder(root.join(folder)))?;
        let last = [LOCK, REMOVING].map(|name| root.join(name));
        last.into_iter().filter(|path| path.exists()).try_for_each(remove_file)?;
        drop(self);
        remove_folder(root)
    }
}

/// Whether a run in the middle of its removal is known by this file.
fn is_kept_to_the_last(file: &Path) -> bool {
    ["config.toml", REMOVING, LOCK].iter().any(|name| file == Path::new(name))
}
