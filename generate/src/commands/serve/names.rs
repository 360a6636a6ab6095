//! The names of the served models, and their folders.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use ember_cli::program::UsageError;
use ember_decoding::run_folder;
use ember_host::files::name_of;

use super::error::ApiError;

/// A model's name and its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedFolder {
    pub(super) name: String,
    pub(super) folder: PathBuf,
}

impl NamedFolder {
    /// Replaces the folder by the checkpoint in it, which may be a run's.
    ///
    /// # Errors
    /// When the folder holds no checkpoint.
    pub(super) fn resolved(&self) -> Result<Self> {
        Ok(Self { name: self.name.clone(), folder: run_folder::find(Some(&self.folder))?.folder })
    }
}

/// The models that are served.
#[derive(Debug)]
pub(super) struct Served {
    /// Models known at startup; the first is the default.
    pub(super) folders: Vec<NamedFolder>,
    /// A run whose current checkpoints are served too.
    pub(super) run: Option<PathBuf>,
}

impl Served {
    /// All models available now.
    pub(super) fn all(&self) -> Vec<NamedFolder> {
        let mut all = self.folders.clone();
        // A run that is being moved or removed has no checkpoints.
        if let Some(run) = &self.run {
            let folders = run_folder::checkpoints(run).unwrap_or_default().into_iter();
            let checkpoints = folders.map(|folder| NamedFolder { name: checkpoint_name(run, &folder), folder });
            // A checkpoint that was named itself is already in the list.
            all.extend(checkpoints.filter(|checkpoint| self.folders.iter().all(|other| other.name != checkpoint.name)));
        }
        all
    }

    /// The model for requests that name none.
    pub(super) fn default_folder(&self) -> &NamedFolder {
        &self.folders[0]
    }

    /// The model of this name, or the default.
    ///
    /// # Errors
    /// When no model has this name.
    pub(super) fn find(&self, name: Option<&str>) -> Result<NamedFolder, ApiError> {
        let Some(name) = name else { return Ok(self.default_folder().clone()) };
        if let Some(found) = self.folders.iter().find(|one| one.name == name) {
            return Ok(found.clone());
        }
        let all = self.all();
        let found = all.iter().find(|one| one.name == name).cloned();
        found.ok_or_else(|| ApiError::unknown_model(name, all.iter().map(|one| &*one.name)))
    }

    /// # Errors
    /// When two models have the same name.
    pub(super) fn check_names(&self) -> Result<()> {
        for (i, NamedFolder { name, .. }) in self.folders.iter().enumerate() {
            ensure!(
                self.folders[..i].iter().all(|other| other.name != *name),
                UsageError::new(format!("two models are named {name}; name them apart with --model NAME=FOLDER"))
            );
        }
        Ok(())
    }
}

/// The model in the folder `found`, to which `from` resolved; with `checkpoints` also the run's
/// other checkpoints.
pub(super) fn served(from: Option<&Path>, found: PathBuf, checkpoints: bool) -> Result<Served> {
    let folder = found.canonicalize().unwrap_or_else(|_| found.clone());
    let is_named = from.and_then(|from| from.canonicalize().ok()).is_some_and(|from| from == folder);
    let run = folder.parent().filter(|parent| parent.ends_with(run_folder::CHECKPOINTS)).and_then(Path::parent);
    let name = match run {
        Some(run) if is_named => checkpoint_name(run, &folder),
        run => name_of(run.unwrap_or(&folder)).unwrap_or_default(),
    };
    let folders = vec![NamedFolder { name, folder: found }];
    if !checkpoints {
        return Ok(Served { folders, run: None });
    }
    let Some(run) = run else {
        bail!(UsageError::new("--checkpoints needs a run; name one with --from, or drop --checkpoints"))
    };
    run_folder::checkpoints(run)?;
    Ok(Served { folders, run: Some(run.to_owned()) })
}

/// Parses `NAME=FOLDER`.
pub(super) fn parse_named(text: &str) -> Result<NamedFolder, String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !folder.is_empty() => {
            Ok(NamedFolder { name: name.to_owned(), folder: PathBuf::from(folder) })
        }
        _ => Err("write NAME=FOLDER".to_owned()),
    }
}

/// The name of a checkpoint: `run@step`.
fn checkpoint_name(run: &Path, checkpoint: &Path) -> String {
    let [run, step] = [run, checkpoint].map(|folder| name_of(folder).unwrap_or_default());
    let number = step.trim_start_matches("step-").trim_start_matches('0');
    format!("{run}@{}", if number.is_empty() { "0" } else { number })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_checkpoint_that_is_named_is_the_first_of_its_run_and_stands_there_once() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("mine");
        for step in ["step-00000005", "step-00000010"] {
            let folder = run.join(run_folder::CHECKPOINTS).join(step);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("config.json"), "{}").unwrap();
        }
        std::fs::write(run.join("best"), "step-00000010").unwrap();
        let names = |served: &Served| -> Vec<String> { served.all().into_iter().map(|one| one.name).collect() };
        let served = |from: &Path| served(Some(from), run_folder::find(Some(from)).unwrap().folder, true).unwrap();
        assert_eq!(names(&served(&run)), ["mine", "mine@5", "mine@10"]);
        assert_eq!(names(&served(&run.join("checkpoints/step-00000010"))), ["mine@10", "mine@5"]);
        // A run that continues saves new checkpoints and removes old ones.
        let served = served(&run);
        let checkpoints = run.join(run_folder::CHECKPOINTS);
        std::fs::rename(checkpoints.join("step-00000005"), checkpoints.join("step-00000015")).unwrap();
        assert_eq!(names(&served), ["mine", "mine@10", "mine@15"]);
    }
}
