//! Removes a run, finished or not begun: all its files, and never anything else.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ember_data::prepare::CHECKPOINT;
use ember_host::file_error::{At, FileError};
use ember_host::files::UNFINISHED;
use ember_model::folder::CARD;

use crate::error::FolderError;
use crate::run::checkpoint::OF_TRAINING;
use crate::run::folder::{
    AVERAGE, BEST, CHECKPOINTS, CONFIG, DAMAGED, DATA, EVENTS, LATEST, LOCK, METRICS, NOT_FINITE, PLOT, REMOVING,
    REPORTS, RunFolder, SAMPLES, SAMPLES_LOG, SUPERSEDED, TENSORBOARD, has_own_data, is_run, mark_removed, step_of,
};

/// A run that can be removed. Its lock is held, so nobody trains it meanwhile.
#[derive(Debug)]
pub struct Removal {
    run: RunFolder,
    contents: Contents,
}

impl Removal {
    /// Checks that the run in `path` can be removed, and takes its lock. Removes nothing yet.
    ///
    /// # Errors
    /// When it is no run, its folder holds other files, or another process uses it.
    pub fn new(path: &Path) -> Result<Self, FolderError> {
        if !is_run(path) {
            return Err(FolderError::NoRun(path.to_owned()));
        }
        let refuse_others = |contents: Contents| match contents.foreign.first() {
            Some(file) => Err(FolderError::NotOnlyRun { path: path.to_owned(), file: file.clone() }),
            None => Ok(contents),
        };
        refuse_others(Contents::read(path)?)?; // before taking the lock, which creates a file
        let run = RunFolder::lock(path)?;
        run.tidy();
        let contents = refuse_others(Contents::read(path)?)?;
        Ok(Self { run, contents })
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        self.run.path()
    }

    /// Bytes that the removal frees.
    pub fn bytes(&self) -> u64 {
        self.contents.bytes
    }

    /// Removes the run. Its configuration is renamed first and removed last: if this is
    /// interrupted, the rest cannot be resumed, but is recognised and can be removed.
    ///
    /// # Errors
    /// When something cannot be removed, or was put into the folder meanwhile; the line names it.
    pub fn carry_out(self) -> Result<(), FileError> {
        let root = self.path().canonicalize().at("cannot find", self.path())?;
        mark_removed(&root)?;
        // Pointers and logs first, then the files that they refer to.
        let mut files: Vec<&PathBuf> = self.contents.files.iter().filter(|file| !is_removed_last(file)).collect();
        files.sort_by_key(|file| file.iter().count());
        let remove_file = |path: PathBuf| fs::remove_file(&path).at("cannot remove", &path);
        let remove_folder = |path: PathBuf| fs::remove_dir(&path).at("cannot remove", &path);
        files.into_iter().try_for_each(|file| remove_file(root.join(file)))?;
        self.contents.folders.iter().try_for_each(|folder| remove_folder(root.join(folder)))?;
        let last = [LOCK, REMOVING].map(|name| root.join(name));
        last.into_iter().filter(|path| path.exists()).try_for_each(remove_file)?;
        let named = self.path().to_owned();
        drop(self);
        remove_folder(root)?;
        if named.is_symlink() { remove_file(named) } else { Ok(()) } // a link to the removed folder
    }
}

impl RunFolder {
    /// Removes the folder of a run that did not begin, and leaves what others put into it
    /// meanwhile. First logs and samples, while `config.toml` still shows that this is a run; then
    /// `config.toml` becomes `.removing`; then the data; the lock and `.removing` last. So whatever
    /// a kill or a power cut leaves is recognised, and can be resumed or removed.
    pub(in crate::run) fn remove_not_begun(&self) {
        let mut contents = Contents::default();
        let _ = contents.list(self.path(), Path::new("")); // after an error, with what was listed before it
        let is_data = |path: &Path| path.starts_with(DATA);
        contents.remove_where(self.path(), |path| !is_data(path) && !is_removed_last(path));
        let _ = mark_removed(self.path());
        contents.remove_where(self.path(), is_data);
        for name in [LOCK, REMOVING] {
            let _ = fs::remove_file(self.file(name));
        }
        let _ = fs::remove_dir(self.path()); // fails if the folder is not empty
    }
}

/// Whether this file identifies a run during its removal.
fn is_removed_last(file: &Path) -> bool {
    [CONFIG, REMOVING, LOCK].iter().any(|name| file == Path::new(name))
}

/// The contents of a run's folder, by paths relative to it.
#[derive(Debug, Default)]
pub struct Contents {
    /// The files of the run.
    pub files: Vec<PathBuf>,
    /// The folders of the run, each before its parent.
    pub folders: Vec<PathBuf>,
    /// Everything else; foreign folders are not read.
    pub foreign: Vec<PathBuf>,
    /// Bytes of `files`.
    pub bytes: u64,
}

impl Contents {
    /// Lists the run's folder `root`.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn read(root: &Path) -> Result<Self, FileError> {
        let mut contents = Self::default();
        contents.list(root, Path::new(""))?;
        contents.foreign.sort();
        Ok(contents)
    }

    /// Removes those of the run's files and folders below `root` for which `is_removed` is true;
    /// ignores what cannot be removed.
    fn remove_where(&self, root: &Path, is_removed: impl Fn(&Path) -> bool) {
        for file in self.files.iter().filter(|file| is_removed(file)) {
            let _ = fs::remove_file(root.join(file));
        }
        for folder in self.folders.iter().filter(|folder| is_removed(folder)) {
            let _ = fs::remove_dir(root.join(folder));
        }
    }

    fn list(&mut self, root: &Path, folder: &Path) -> Result<(), FileError> {
        let path = root.join(folder);
        for entry in fs::read_dir(&path).at("cannot read", &path)? {
            let entry = entry.at("cannot read", &path)?;
            let below = folder.join(entry.file_name());
            // Does not follow links: their targets do not belong to the run.
            let data = match entry.metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue, // removed meanwhile
                data => data.at("cannot read", entry.path())?,
            };
            let names: Option<Vec<&str>> = below.iter().map(|name| name.to_str()).collect();
            let is_of_run = |names: &[&str]| is_folder(names) && (names != [DATA] || has_own_data(root));
            if data.is_dir() && names.as_deref().is_some_and(is_of_run) {
                self.list(root, &below)?;
                self.folders.push(below);
            } else if data.is_file() && names.as_deref().is_some_and(is_file) {
                self.bytes += data.len();
                self.files.push(below);
            } else {
                self.foreign.push(below);
            }
        }
        Ok(())
    }
}

/// Whether runs have a folder with this path, given by its names.
fn is_folder(path: &[&str]) -> bool {
    match path {
        [name] => [CHECKPOINTS, DATA, REPORTS, SAMPLES, TENSORBOARD].contains(name),
        [DATA, name] => *name == CHECKPOINT,
        [CHECKPOINTS, name] => is_checkpoint(name),
        [CHECKPOINTS, _, name] => [AVERAGE, "training"].contains(name),
        _ => false,
    }
}

/// Whether runs have a file with this path, given by its names.
fn is_file(path: &[&str]) -> bool {
    match path {
        [.., name] if name.starts_with(UNFINISHED) => true,
        [name] => [CONFIG, REMOVING, LOCK, METRICS, PLOT, LATEST, BEST].contains(name),
        [DATA, name] => {
            ["train.bin", "val.bin", "tokenizer.json", "tokenizer_config.json", "manifest.json"].contains(name)
        }
        [DATA, CHECKPOINT, _] => true,
        [SAMPLES, name] => *name == SAMPLES_LOG || name.starts_with("step-") && name.ends_with(".txt"),
        [TENSORBOARD, name] => name.starts_with(EVENTS),
        [REPORTS, name] => name.starts_with(NOT_FINITE) && name.ends_with(".json"),
        [CHECKPOINTS, _, "training", name] => {
            OF_TRAINING.iter().any(|file| file.strip_prefix("training/") == Some(*name))
        }
        [CHECKPOINTS, _, name] | [CHECKPOINTS, _, AVERAGE, name] => MODEL.contains(name),
        _ => false,
    }
}

/// The files of a checkpoint that inference reads, and its model card.
const MODEL: [&str; 7] = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "checksums.json",
    CARD,
];

/// Whether this is a checkpoint's name, including renamed and half-written ones. Of the damaged
/// checkpoints of one step, all but the first are numbered.
fn is_checkpoint(name: &str) -> bool {
    let is_plain = |name: &str| step_of(Path::new(name)).is_some();
    let is_numbered = |name: &str| {
        let parts = name.rsplit_once('-');
        parts.is_some_and(|(checkpoint, number)| is_plain(checkpoint) && number.parse::<u64>().is_ok())
    };
    let aside = |why: &str| name.strip_prefix(why)?.strip_prefix('-');
    name.starts_with(UNFINISHED)
        || is_plain(aside(SUPERSEDED).unwrap_or(name))
        || aside(DAMAGED).is_some_and(|name| is_plain(name) || is_numbered(name))
}
