//! Which checkpoint the user means: a run folder, a checkpoint folder, any Hugging Face folder, a
//! model file of another program, or the newest run.

use std::path::{Path, PathBuf};
use std::{fmt, fs, time::SystemTime};

use ember_formats::FormatError;
use ember_host::file_error::{At, FileError};
use ember_model::folder;

use crate::foreign;

pub use crate::foreign::without_tokenizer;

/// Where runs stand when nobody says otherwise.
pub const RUNS: &str = "runs";
/// The folder in a run's that holds its checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
/// The folder in a checkpoint's that holds the averaged weights.
pub const AVERAGE: &str = "ema";
/// The file of a run that names its last checkpoint.
pub const LATEST: &str = "latest";
/// The file of a run that names its checkpoint with the lowest validation loss.
pub const BEST: &str = "best";

/// Why there is no checkpoint where the user means one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum FindError {
    /// It is nothing, or some other folder, but there is a run of that name, or a model's file in it.
    #[error("{} is neither a run nor a checkpoint; did you mean {}?", path.display(), meant.display())]
    DidYouMean { path: PathBuf, meant: PathBuf },
    /// There is nothing of that name.
    #[error(
        "{} does not exist; name a run folder, a checkpoint folder, a Hugging Face folder or a model's file (.gguf, ckpt.pt, .bin)",
        .0.display()
    )]
    Absent(PathBuf),
    /// It is a file, and no model.
    #[error(
        "{} is a file; name the folder that holds config.json and model.safetensors, or a model's file (.gguf, ckpt.pt, .bin)",
        .0.display()
    )]
    IsFile(PathBuf),
    /// It is a model file of another program, which cannot be opened.
    #[error(transparent)]
    Foreign(#[from] FormatError),
    /// The run has saved nothing.
    #[error("the run {} has no checkpoint yet; wait for its first, or train on", .0.display())]
    NoCheckpointYet(PathBuf),
    /// It is some other folder.
    #[error("{} is neither a run (it has no `best` or `latest`) nor a checkpoint (it has no config.json)", .0.display())]
    Neither(PathBuf),
    /// A run that names what is not there.
    #[error(
        "{} names \"{name}\", but {} is no checkpoint; write the name of one that is there into {}, or give its folder",
        file.display(), folder.display(), file.file_name().unwrap_or_default().display()
    )]
    Dangling { file: PathBuf, name: String, folder: PathBuf },
    /// No folder of runs, where none was named.
    #[error("there is no folder {} here; train a model, or name a folder", .0.display())]
    NoRuns(PathBuf),
    /// No run with a checkpoint, where none was named.
    #[error("no run under {} has a checkpoint yet; train one, or name a folder", .0.display())]
    NoRunYet(PathBuf),
    /// A file or folder that cannot be read.
    #[error(transparent)]
    Read(#[from] FileError),
    /// A folder that holds what is no regular file, or weights without what says of which model.
    #[error(transparent)]
    Folder(#[from] folder::FolderError),
}

/// A checkpoint folder, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The folder that holds `config.json` and the weights.
    pub folder: PathBuf,
    /// Why this one, for the user: "best of runs/a"; empty when it was named itself.
    pub reason: String,
}

impl fmt::Display for Found {
    /// The folder, and in brackets why this one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.folder.display())?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, " ({})", self.reason) }
    }
}

/// Finds the checkpoint that `from` means: a folder with a `config.json` is one itself; of a run
/// folder it is the `best`, else the `latest`; of a model file of another program, such as a GGUF,
/// the folder that it is converted into; without a `from` it is that of the run under `runs/` that
/// was saved to last.
///
/// # Errors
/// One line that names the folder and says what it lacks.
pub fn find(from: Option<&Path>) -> Result<Found, FindError> {
    match from {
        Some(path) => find_in(path),
        None => newest_run(Path::new(RUNS)),
    }
}

/// So often is found anew what training removed before it was read.
const TRIES: usize = 4;

/// Finds the checkpoint that `from` means, as [`find`] does, and opens it; where training removed it
/// meanwhile, the one that the run names by then.
///
/// # Errors
/// As [`find`], and what `open` returns.
pub fn find_and_open<T, E: From<FindError>>(
    from: Option<&Path>,
    mut open: impl FnMut(Found) -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..TRIES {
        let found = find(from)?;
        let (folder, was_chosen) = (found.folder.clone(), !found.reason.is_empty());
        // Also where it could be opened: what was no longer there may have been taken for left out.
        let opened = open(found);
        if !was_chosen || holds_model(&folder) {
            return opened;
        }
    }
    open(find(from)?)
}

fn holds_model(folder: &Path) -> bool {
    folder.join("config.json").is_file()
}

fn find_in(path: &Path) -> Result<Found, FindError> {
    let named = path.to_owned();
    if !path.exists() {
        return Err(namesake(path).map_or_else(|| FindError::Absent(named), |run| did_you_mean(path, run)));
    }
    if !path.is_dir() {
        let folder = foreign::folder_of(path)?.ok_or(FindError::IsFile(named))?;
        return Ok(Found { folder, reason: format!("made of {}", path.display()) });
    }
    folder::refuse_irregular_files(path)?;
    if holds_model(path) {
        return Ok(Found { folder: path.to_owned(), reason: String::new() });
    }
    for pointer in [BEST, LATEST] {
        if path.join(pointer).is_file() {
            return follow(path, pointer);
        }
    }
    folder::refuse_lost_config(path)?;
    let is_run = path.join("config.toml").is_file() || path.join(CHECKPOINTS).is_dir();
    if is_run {
        return Err(FindError::NoCheckpointYet(named));
    }
    let meant = namesake(path).or_else(|| model_file_in(path));
    Err(meant.map_or_else(|| FindError::Neither(named), |meant| did_you_mean(path, meant)))
}

fn did_you_mean(path: &Path, meant: PathBuf) -> FindError {
    FindError::DidYouMean { path: path.to_owned(), meant }
}

/// A model of another program in a folder that holds none of ours, such as the folder that nanoGPT
/// writes into; the first by its name. What ends in `.bin` is seldom a model.
fn model_file_in(folder: &Path) -> Option<PathBuf> {
    let is_model = |path: &PathBuf| path.extension().is_some_and(|end| end == "gguf" || end == "pt") && path.is_file();
    fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(is_model).min()
}

/// The run under `runs/` of this name, which is also that of the text it learned: who names a folder
/// that is no run may mean it.
pub fn namesake(path: &Path) -> Option<PathBuf> {
    let run = Path::new(RUNS).join(path);
    (path.is_relative() && run.join("config.toml").is_file()).then_some(run)
}

/// The checkpoint that the run's text file `pointer` names.
fn follow(run: &Path, pointer: &str) -> Result<Found, FindError> {
    let file = run.join(pointer);
    let mut missing = String::new();
    loop {
        let content = fs::read_to_string(&file).at("cannot read", &file)?;
        let name = content.trim();
        // The file names a folder in `checkpoints/`; anything that leads elsewhere was not written by
        // a run.
        let folder = run.join(CHECKPOINTS).join(Path::new(name).file_name().unwrap_or_default());
        let regular = folder::refuse_irregular_files(&folder);
        if !name.is_empty() && holds_model(&folder) {
            regular?;
            return Ok(Found { folder, reason: format!("{pointer} of {}", run.display()) });
        }
        // Training lets it name another before it removes one: it may have done both since.
        if name == missing {
            folder::refuse_lost_config(&folder)?;
            return Err(FindError::Dangling { file, name: missing, folder });
        }
        missing = name.to_owned();
    }
}

fn newest_run(runs: &Path) -> Result<Found, FindError> {
    if !runs.is_dir() {
        return Err(FindError::NoRuns(runs.to_owned()));
    }
    let saved = |run: &Path| -> Option<SystemTime> {
        let time = |pointer| fs::metadata(run.join(pointer)).and_then(|file| file.modified()).ok();
        time(LATEST).max(time(BEST))
    };
    let entries = fs::read_dir(runs).at("cannot read", runs)?;
    let runs_within = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let newest = runs_within.filter_map(|run| Some((saved(&run)?, run))).max();
    let (_, run) = newest.ok_or_else(|| FindError::NoRunYet(runs.to_owned()))?;
    let found = find_in(&run)?;
    Ok(Found { reason: format!("{}, the newest run", found.reason), ..found })
}

/// The checkpoints of a run that hold a model, the first step first; none that is being written or
/// was put aside.
///
/// # Errors
/// When its folder cannot be read.
pub fn checkpoints(run: &Path) -> Result<Vec<PathBuf>, FindError> {
    let folder = run.join(CHECKPOINTS);
    let entries = fs::read_dir(&folder).at("cannot read", &folder)?;
    let found = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        Some((step_of(&path)?, path))
    });
    let mut found: Vec<(u64, PathBuf)> = found.filter(|(_, path)| holds_model(path)).collect();
    found.sort();
    let regular = |(_, checkpoint): (u64, PathBuf)| match folder::refuse_irregular_files(&checkpoint) {
        Err(_) if !holds_model(&checkpoint) => None, // training removed it since
        checked => Some(checked.map(|()| checkpoint).map_err(FindError::from)),
    };
    found.into_iter().filter_map(regular).collect()
}

/// The step that the name of a checkpoint's folder says, if it is one.
pub fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn checkpoint(run: &Path, name: &str) {
        let folder = run.join("checkpoints").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.json"), "{}").unwrap();
    }

    fn refused(path: &Path) -> String {
        format!("{:#}", find_in(path).unwrap_err())
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        checkpoint(run, "step-1");
        fs::write(run.join("latest"), "step-1").unwrap();
        let weights = run.join("checkpoints/step-1/model.safetensors");
        assert!(std::process::Command::new("mkfifo").arg(&weights).status().unwrap().success());
        let line = format!("{} is a pipe, a device or a socket and no file", weights.display());
        assert!(refused(run).starts_with(&line), "{}", refused(run));
        assert!(refused(&run.join("checkpoints/step-1")).starts_with(&line));
        fs::remove_file(&weights).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &weights).unwrap();
        assert!(refused(run).starts_with(&line));
    }

    #[test]
    fn a_checkpoint_that_lost_its_configuration_is_told_from_another_folder() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        checkpoint(run, "step-1");
        fs::write(run.join("best"), "step-1").unwrap();
        let folder = run.join("checkpoints/step-1");
        fs::write(folder.join("model.safetensors"), "").unwrap();
        fs::remove_file(folder.join("config.json")).unwrap();
        let line = format!("{} holds no config.json, which says what model its weights are", folder.display());
        assert!(refused(run).starts_with(&line), "{}", refused(run));
        assert!(refused(&folder).starts_with(&line), "{}", refused(&folder));
        fs::remove_file(folder.join("model.safetensors")).unwrap();
        assert!(refused(run).contains("is no checkpoint") && refused(&folder).contains("neither a run"));
    }

    #[test]
    fn a_run_gives_its_best_else_its_latest_and_a_checkpoint_itself() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        checkpoint(run, "step-00000100");
        checkpoint(run, "step-00000200");
        fs::write(run.join("latest"), "step-00000200\n").unwrap();
        assert!(find_in(run).unwrap().folder.ends_with("checkpoints/step-00000200"));
        fs::write(run.join("best"), "step-00000100").unwrap();
        let best = find_in(run).unwrap();
        assert!(best.folder.ends_with("checkpoints/step-00000100") && best.reason.starts_with("best of "));
        assert_eq!(find_in(&best.folder).unwrap(), Found { folder: best.folder, reason: String::new() });
    }

    #[test]
    fn a_checkpoint_that_training_removes_meanwhile_gives_its_place_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        let point = |name: &str| fs::write(run.join("best"), name).unwrap();
        let replace = |old: &str, new: &str| {
            checkpoint(run, new);
            point(new);
            fs::remove_dir_all(run.join("checkpoints").join(old)).unwrap();
        };
        checkpoint(run, "step-0");
        point("step-0");
        let mut opened = Vec::new();
        let open = |found: Found| -> Result<PathBuf, FindError> {
            opened.push(found.folder.clone());
            if opened.len() == 1 {
                replace("step-0", "step-1");
            }
            Ok(found.folder)
        };
        assert!(find_and_open(Some(run), open).unwrap().ends_with("step-1"));
    }

    #[test]
    fn whoever_looks_at_a_run_that_saves_finds_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        let save = |step: usize| {
            checkpoint(run, &format!("step-{step}"));
            fs::write(run.join("unfinished"), format!("step-{step}")).unwrap();
            fs::rename(run.join("unfinished"), run.join("best")).unwrap();
        };
        save(0);
        std::thread::scope(|scope| {
            let saving = scope.spawn(|| {
                for step in 1..500 {
                    save(step);
                    fs::remove_dir_all(run.join("checkpoints").join(format!("step-{}", step - 1))).unwrap();
                }
            });
            while !saving.is_finished() {
                find_in(run).unwrap();
                checkpoints(run).unwrap();
            }
        });
    }

    #[test]
    fn a_run_has_its_checkpoints_in_the_order_of_its_steps() {
        let dir = tempfile::tempdir().unwrap();
        checkpoint(dir.path(), "step-00000200");
        checkpoint(dir.path(), "step-00000030");
        checkpoint(dir.path(), "step-100000000");
        for other in [".unfinished-300", "damaged-step-00000100", "superseded-step-00000250"] {
            checkpoint(dir.path(), other);
        }
        fs::create_dir(dir.path().join("checkpoints/half")).unwrap();
        let found = checkpoints(dir.path()).unwrap();
        let names: Vec<_> = found.iter().filter_map(|found| found.file_name()?.to_str()).collect();
        assert_eq!(names, ["step-00000030", "step-00000200", "step-100000000"]);
    }

    #[test]
    fn what_is_no_checkpoint_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        assert!(refused(&run.join("absent")).contains("absent does not exist"));
        assert!(refused(run).contains("neither a run"));
        for name in ["train.bin", "ckpt.pt", "ckpt_old.pt"] {
            fs::write(run.join(name), "").unwrap();
        }
        assert!(
            refused(run).ends_with(&format!("did you mean {}?", run.join("ckpt.pt").display())),
            "{}",
            refused(run)
        );
        fs::write(run.join("config.toml"), "").unwrap();
        assert!(refused(run).contains("has no checkpoint yet"));
        assert!(refused(&run.join("config.toml")).contains("is a file"));
        for content in ["step-00000300", "", "..", "/"] {
            fs::write(run.join("best"), content).unwrap();
            assert!(refused(run).contains("is no checkpoint"), "{content}");
        }
    }

    #[test]
    fn the_newest_run_is_the_one_saved_to_last() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path();
        assert!(newest_run(&runs.join("runs")).unwrap_err().to_string().contains("there is no folder"));
        assert!(newest_run(runs).unwrap_err().to_string().contains("has a checkpoint yet"));
        let now = SystemTime::now();
        for (name, age_s) in [("a", 100), ("b", 5), ("c", 50)] {
            checkpoint(&runs.join(name), "step-1");
            let latest = runs.join(name).join("latest");
            fs::write(&latest, "step-1").unwrap();
            fs::File::open(&latest).unwrap().set_modified(now - Duration::from_secs(age_s)).unwrap();
        }
        fs::create_dir(runs.join("unfinished")).unwrap();
        let found = newest_run(runs).unwrap();
        assert!(found.folder.starts_with(runs.join("b")) && found.reason.ends_with("the newest run"), "{found:?}");
    }
}
