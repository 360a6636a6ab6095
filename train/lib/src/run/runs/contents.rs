//! What lies in a run's folder, and whether a run left it there.

use std::fs;
use std::path::{Path, PathBuf};

use ember_host::file_error::{At, FileError};
use ember_host::files::UNFINISHED;

use crate::run::folder::{DAMAGED, LOCK, SUPERSEDED, step_of};

/// What `config.toml` is called from the moment on at which a run is being removed.
pub(super) const REMOVING: &str = ".removing";

/// What lies in a run's folder, by paths below it.
#[derive(Debug, Default)]
pub struct Contents {
    /// The files that a run leaves.
    pub files: Vec<PathBuf>,
    /// The folders that a run leaves, each before the one it lies in.
    pub folders: Vec<PathBuf>,
    /// All else. Nothing of it is looked into.
    pub foreign: Vec<PathBuf>,
    /// Of the files.
    pub bytes: u64,
}

impl Contents {
    /// Looks through the run's folder `root`.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn read(root: &Path) -> Result<Self, FileError> {
        let mut contents = Self::default();
        contents.look(root, Path::new(""))?;
        contents.foreign.sort();
        Ok(contents)
    }

    fn look(&mut self, root: &Path, folder: &Path) -> Result<(), FileError> {
        let path = root.join(folder);
        for entry in fs::read_dir(&path).at("cannot read", &path)? {
            let entry = entry.at("cannot read", &path)?;
            let below = folder.join(entry.file_name());
            // Of the entry itself: a link leads to what is not the run's own.
            let data = entry.metadata().at("cannot read", entry.path())?;
            let names: Option<Vec<&str>> = below.iter().map(|name| name.to_str()).collect();
            if data.is_dir() && names.as_deref().is_some_and(is_folder) {
                self.look(root, &below)?;
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

/// Whether runs have a folder of this path, a name each.
fn is_folder(path: &[&str]) -> bool {
    match path {
        [name] => ["checkpoints", "data", "reports", "samples", "tensorboard"].contains(name),
        ["checkpoints", name] => is_checkpoint(name),
        ["checkpoints", _, name] => ["ema", "training"].contains(name),
        _ => false,
    }
}

/// Whether runs have a file of this path, a name each.
fn is_file(path: &[&str]) -> bool {
    match path {
        [.., name] if name.starts_with(UNFINISHED) => true,
        [name] => ["config.toml", REMOVING, LOCK, "metrics.jsonl", "loss.svg", "latest", "best"].contains(name),
        ["data", name] => {
            ["train.bin", "val.bin", "tokenizer.json", "tokenizer_config.json", "manifest.json"].contains(name)
        }
        ["samples", name] => *name == "samples.jsonl" || name.starts_with("step-") && name.ends_with(".txt"),
        ["tensorboard", name] => name.starts_with("events.out.tfevents."),
        ["reports", name] => name.starts_with("nonfinite-step-") && name.ends_with(".json"),
        ["checkpoints", _, "training", name] => {
            ["state.json", "evaluations.json", "moments.safetensors"].contains(name)
        }
        ["checkpoints", _, name] | ["checkpoints", _, "ema", name] => MODEL.contains(name),
        _ => false,
    }
}

/// The files of a checkpoint that inference reads.
const MODEL: [&str; 6] = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "checksums.json",
];

/// Whether checkpoints are called so, also those that are put aside or half written.
fn is_checkpoint(name: &str) -> bool {
    let aside = [SUPERSEDED, DAMAGED].iter().find_map(|why| name.strip_prefix(why)?.strip_prefix('-'));
    name.starts_with(UNFINISHED) || step_of(Path::new(aside.unwrap_or(name))).is_some()
}
