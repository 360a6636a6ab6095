//! A run's folder: where each file is, who owns it, and how a new one gets its name.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ember_data::files::write_atomic;
use ember_generate::program::UsageError;

use crate::config::TrainConfig;

/// A run folder that this process owns until it is dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Held for its lock, which the system releases when the process ends, however it ends.
    _lock: File,
}

/// The two pointers of a run folder: text files that name a folder in `checkpoints/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The last checkpoint.
    Latest,
    /// The checkpoint with the lowest validation loss.
    Best,
}

impl Pointer {
    fn name(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Best => "best",
        }
    }
}

impl RunFolder {
    /// Makes a folder for a new run and takes its lock.
    ///
    /// # Errors
    /// A [`UsageError`] when the folder holds a run already; else when it cannot be made or another process uses it.
    pub fn create(path: &Path) -> Result<Self> {
        let path_text = path.display();
        if path.join("config.toml").exists() || path.join("checkpoints").exists() {
            return Err(UsageError::new(format!(
                "{path_text} holds a run already; continue it with `ember-train resume {path_text}`, or choose another --out"
            ))
            .into());
        }
        if path.exists() && !path.is_dir() {
            return Err(UsageError::new(format!("--out {path_text} is a file; name a folder")).into());
        }
        fs::create_dir_all(path)
            .with_context(|| format!("cannot create the run folder {path_text}; choose another --out"))?;
        Self::lock(path)
    }

    /// Opens the folder of a run that was begun, and takes its lock.
    ///
    /// # Errors
    /// When there is no run in it, or another process uses it.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join("config.toml").is_file() {
            bail!("{} is not a run folder (it has no config.toml); name the folder that `run` made", path.display());
        }
        Self::lock(path)
    }

    fn lock(path: &Path) -> Result<Self> {
        let file_path = path.join(".lock");
        let lock = File::create(&file_path).with_context(|| format!("cannot write {}", file_path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                bail!("{} is in use by another ember-train; wait for it to end, or stop it first", path.display())
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", file_path.display()))
            }
        }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the run: the folder's own.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Where the prepared tokens are.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// Writes the resolved configuration, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_config(&self, config: &TrainConfig) -> Result<()> {
        let text = config.to_toml()?;
        write_atomic(&self.config(), |file| Ok(file.write_all(text.as_bytes())?))
    }

    /// The log of numbers.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// The picture of the losses.
    pub fn plot(&self) -> PathBuf {
        self.path.join("loss.svg")
    }

    /// Where the text sampled at `step` is written.
    pub fn sample(&self, step: u64) -> PathBuf {
        self.path.join("samples").join(format!("step-{step:08}.txt"))
    }

    /// Where all checkpoints are.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Where the checkpoint of `step` is.
    pub fn checkpoint(&self, step: u64) -> PathBuf {
        self.checkpoints().join(checkpoint_name(step))
    }

    /// The checkpoint folder that a pointer names; `None` before the first.
    ///
    /// # Errors
    /// When the pointer cannot be read, or the folder it names is gone.
    pub fn pointed(&self, pointer: Pointer) -> Result<Option<PathBuf>> {
        let file = self.path.join(pointer.name());
        if !file.exists() {
            return Ok(None);
        }
        let name = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let folder = self.checkpoints().join(name.trim());
        if !folder.is_dir() {
            bail!(
                "{} names {}, which is not there; write the name of a folder in checkpoints/ into it",
                file.display(),
                folder.display()
            );
        }
        Ok(Some(folder))
    }

    /// Lets a pointer name the checkpoint of `step`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn point(&self, pointer: Pointer, step: u64) -> Result<()> {
        write_atomic(&self.path.join(pointer.name()), |file| Ok(writeln!(file, "{}", checkpoint_name(step))?))
    }

    /// Removes every checkpoint but those the pointers name, and what an interrupted save left behind. A folder that cannot be
    /// removed is left alone: it costs space, nothing else.
    pub fn prune(&self) -> Result<()> {
        let keep = [self.pointed(Pointer::Latest)?, self.pointed(Pointer::Best)?];
        let Ok(entries) = fs::read_dir(self.checkpoints()) else { return Ok(()) };
        for entry in entries.flatten() {
            let path = entry.path();
            if !keep.iter().flatten().any(|kept| *kept == path) {
                let _ = fs::remove_dir_all(path);
            }
        }
        Ok(())
    }
}

/// The folder name of the checkpoint of `step`.
pub fn checkpoint_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// `runs/<name>`, or the first of `runs/<name>-2`, `-3`, ... that is not there yet.
pub fn new_path(name: &str) -> PathBuf {
    let runs = Path::new(ember_generate::run_folder::RUNS);
    let candidates = (1..).map(|n| runs.join(if n == 1 { name.to_owned() } else { format!("{name}-{n}") }));
    candidates.into_iter().find(|path| !path.exists()).unwrap_or_else(|| runs.join(name))
}
