//! Finds the checkpoint that the user means: in a run folder, a checkpoint folder, any Hugging Face
//! folder or another program's model file, or of the newest run.

use std::path::{Path, PathBuf};
use std::{fmt, fs, time::SystemTime};

use ember_formats::FormatError;
use ember_host::file_error::{At, FileError};
use ember_host::files::name_of;
use ember_model::folder;

use crate::foreign;

pub use crate::foreign::{original_of, without_tokenizer};

/// The default folder of runs.
pub const RUNS: &str = "runs";
/// The subfolder of a run with its checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
/// The subfolder of a checkpoint with the averaged weights.
pub const AVERAGE: &str = "ema";
/// The file of a run that names its last checkpoint.
pub const LATEST: &str = "latest";
/// The file of a run that names its checkpoint with the lowest validation loss.
pub const BEST: &str = "best";

/// Why no checkpoint was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum FindError {
    /// It is absent or some other folder, but a run has that name, or a run or a model's file is in
    /// it.
    #[error("{} is neither a run nor a checkpoint; did you mean {}?", path.display(), meant.display())]
    DidYouMean { path: PathBuf, meant: PathBuf },
    /// The path does not exist.
    #[error(
        "{} does not exist; name a run folder, a checkpoint folder, a Hugging Face folder or a model's file (.gguf, ckpt.pt, .bin)",
        .0.display()
    )]
    Absent(PathBuf),
    /// It is a file, but not a model.
    #[error(
        "{} is a file; name the folder that holds config.json and model.safetensors, or a model's file (.gguf, ckpt.pt, .bin)",
        .0.display()
    )]
    IsFile(PathBuf),
    /// It is another program's model file, but cannot be opened.
    #[error(transparent)]
    Foreign(#[from] FormatError),
    /// The run has saved no checkpoint.
    #[error("the run {} has no checkpoint yet; wait for its first, or train on", .0.display())]
    NoCheckpointYet(PathBuf),
    /// It is some other folder.
    #[error(
        "{} is neither a run (it has no `best` or `latest`) nor a checkpoint (it has no config.json); name one, a Hugging Face \
         folder or a model's file (.gguf, ckpt.pt, .bin)",
        .0.display()
    )]
    Neither(PathBuf),
    /// A run names a checkpoint that does not exist.
    #[error(
        "{} names \"{name}\", but {} is not a checkpoint; write the name of an existing one into {}, or give its folder",
        file.display(), folder.display(), file.file_name().unwrap_or_default().display()
    )]
    Dangling { file: PathBuf, name: String, folder: PathBuf },
    /// No path was given, and there is no folder of runs.
    #[error("there is no folder {} here; train a model, or name a folder", .0.display())]
    NoRuns(PathBuf),
    /// No path was given, and no run has a checkpoint.
    #[error("no run under {} has a checkpoint yet; train one, or name a folder", .0.display())]
    NoRunYet(PathBuf),
    /// A file or folder that cannot be read.
    #[error(transparent)]
    Read(#[from] FileError),
    /// A folder with something other than regular files, or with weights but no model config.
    #[error(transparent)]
    Folder(#[from] folder::FolderError),
}

/// A checkpoint folder, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The folder that holds `config.json` and the weights.
    pub folder: PathBuf,
    /// Why this one was chosen, for the user: "best of runs/a"; empty if it was named itself.
    pub reason: String,
}

impl fmt::Display for Found {
    /// The folder, and in brackets why it was chosen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.folder.display())?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, " ({})", self.reason) }
    }
}

/// Finds the checkpoint that `from` means:
/// - a folder with a `config.json` is a checkpoint itself;
/// - for a run folder, its `best` checkpoint, else its `latest`;
/// - for another program's model file, such as a GGUF, the folder that it is converted into;
/// - without a path, the checkpoint of the most recently saved run under `runs/`.
///
/// # Errors
/// One line that names the folder and what it lacks.
pub fn find(from: Option<&Path>) -> Result<Found, FindError> {
    match from {
        Some(path) => find_in(path),
        None => newest_run(Path::new(RUNS)),
    }
}

/// How often to look again for a checkpoint that training removed before it was read.
const TRIES: usize = 4;

/// Finds a checkpoint as [`find`] does and opens it. If training removed it meanwhile, tries the
/// one that the run names now.
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
        // Retry even if it opened: a file that was just removed may have been taken for an absent
        // optional one.
        let opened = open(found);
        if !was_chosen || holds_model(&folder) {
            return opened;
        }
    }
    open(find(from)?)
}

/// The folder of a checkpoint that is named by its folder, or by another program's model file.
///
/// # Errors
/// If it is some other file, or a model's file that cannot be opened.
pub fn folder_of(named: &Path) -> Result<PathBuf, FindError> {
    if !named.is_file() {
        return Ok(named.to_owned());
    }
    foreign::folder_of(named)?.ok_or_else(|| FindError::IsFile(named.to_owned()))
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
        return Ok(Found { folder, reason: format!("converted from {}", path.display()) });
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
    let meant = namesake(path).or_else(|| model_file_in(path)).or_else(|| newest_of(fs::read_dir(path).ok()?));
    Err(meant.map_or_else(|| FindError::Neither(named), |meant| did_you_mean(path, meant)))
}

fn did_you_mean(path: &Path, meant: PathBuf) -> FindError {
    FindError::DidYouMean { path: path.to_owned(), meant }
}

/// Another program's model file in a folder, such as nanoGPT's output folder; the first by name.
/// Files ending in `.bin` are ignored, since few of them are models.
fn model_file_in(folder: &Path) -> Option<PathBuf> {
    let is_model = |path: &PathBuf| path.extension().is_some_and(|end| end == "gguf" || end == "pt") && path.is_file();
    fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(is_model).min()
}

/// The run under `runs/` with this name. A run is named after its text, so a user who names a
/// folder that is no run may mean it.
pub fn namesake(path: &Path) -> Option<PathBuf> {
    let run = Path::new(RUNS).join(path);
    (path.is_relative() && run.join("config.toml").is_file()).then_some(run)
}

/// The checkpoint named in the run's text file `pointer`.
fn follow(run: &Path, pointer: &str) -> Result<Found, FindError> {
    let file = run.join(pointer);
    let mut missing = String::new();
    loop {
        let content = fs::read_to_string(&file).at("cannot read", &file)?;
        let name = content.trim();
        // The file names a folder in `checkpoints/`. Keep only the last path component, so that it
        // cannot lead elsewhere.
        let folder = run.join(CHECKPOINTS).join(Path::new(name).file_name().unwrap_or_default());
        let regular = folder::refuse_irregular_files(&folder);
        if !name.is_empty() && holds_model(&folder) {
            regular?;
            return Ok(Found { folder, reason: format!("{pointer} of {}", run.display()) });
        }
        // Training updates the pointer before it removes a checkpoint. Both may have happened since
        // it was read, so read it once more.
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
    let entries = fs::read_dir(runs).at("cannot read", runs)?;
    let run = newest_of(entries).ok_or_else(|| FindError::NoRunYet(runs.to_owned()))?;
    let found = find_in(&run)?;
    Ok(Found { reason: format!("{}, the newest run", found.reason), ..found })
}

/// The run among a folder's entries that saved a checkpoint last.
fn newest_of(entries: fs::ReadDir) -> Option<PathBuf> {
    let saved = |run: &Path| -> Option<SystemTime> {
        let time = |pointer| fs::metadata(run.join(pointer)).and_then(|file| file.modified()).ok();
        time(LATEST).max(time(BEST))
    };
    let runs = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let newest = runs.filter_map(|run| Some((saved(&run)?, run))).max();
    newest.map(|(_, run)| run)
}

/// The complete checkpoints of a run in the order of their steps, without those being written or
/// put aside.
///
/// # Errors
/// If its folder cannot be read.
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
        Err(_) if !holds_model(&checkpoint) => None, // training has removed it meanwhile
        checked => Some(checked.map(|()| checkpoint).map_err(FindError::from)),
    };
    found.into_iter().filter_map(regular).collect()
}

/// The step in the name of a checkpoint's folder, if it is one.
pub fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

/// A checkpoint's name for people: its run and its step, or the name of its folder, without the
/// path, which is private. `None` if the path ends in no name, such as `/` and `..`.
pub fn name_of_checkpoint(folder: &Path) -> Option<String> {
    let (checkpoint, averaged) = match folder.parent() {
        Some(checkpoint) if folder.ends_with(AVERAGE) => (checkpoint, ", averaged"),
        _ => (folder, ""),
    };
    let run = checkpoint.parent().filter(|around| around.ends_with(CHECKPOINTS)).and_then(Path::parent);
    // Hugging Face's cache: models--OWNER--NAME/snapshots/HASH.
    let cached =
        folder.parent().filter(|around| around.ends_with("snapshots")).and_then(Path::parent).and_then(name_of);
    if let Some(name) = cached.as_deref().and_then(|name| name.strip_prefix("models--")) {
        return Some(name.replacen("--", "/", 1));
    }
    match run.and_then(name_of).zip(step_of(checkpoint)) {
        Some((run, step)) => Some(format!("{run}, step {step}{averaged}")),
        None => name_of(folder),
    }
}

/// As [`name_of_checkpoint`], for one that exists, however its path is written.
pub fn name_of_existing_checkpoint(folder: &Path) -> String {
    let whole_path = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    name_of_checkpoint(&whole_path).unwrap_or_else(|| "a model".to_owned())
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

    #[test]
    fn a_checkpoint_is_named_without_its_place() {
        for (path, expected) in [
            ("/home/ana/runs/diary/checkpoints/step-00000500", Some("diary, step 500")),
            ("/home/ana/runs/diary/checkpoints/step-00000500/ema", Some("diary, step 500, averaged")),
            ("/home/ana/models/gpt2", Some("gpt2")),
            ("/cache/models--openai-community--gpt2/snapshots/607a30d7", Some("openai-community/gpt2")),
            ("/home/ana/step-00000500", Some("step-00000500")),
            ("/home/ana/models/..", None),
        ] {
            assert_eq!(name_of_checkpoint(Path::new(path)).as_deref(), expected, "{path}");
        }
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("diary");
        checkpoint(&run, "step-00000007");
        assert_eq!(
            name_of_existing_checkpoint(&run.join("checkpoints/../checkpoints/step-00000007/.")),
            "diary, step 7"
        );
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
        let line = format!("{} is a pipe, a device or a socket, not a file", weights.display());
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
        let line = format!("{} has no config.json, which describes the model", folder.display());
        assert!(refused(run).starts_with(&line), "{}", refused(run));
        assert!(refused(&folder).starts_with(&line), "{}", refused(&folder));
        fs::remove_file(folder.join("model.safetensors")).unwrap();
        assert!(refused(run).contains("is not a checkpoint") && refused(&folder).contains("neither a run"));
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
            assert!(refused(run).contains("is not a checkpoint"), "{content}");
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
        assert!(refused(runs).ends_with(&format!("did you mean {}?", runs.join("b").display())), "{}", refused(runs));
    }
}
