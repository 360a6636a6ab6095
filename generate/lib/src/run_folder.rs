//! Which checkpoint the user means: a run folder, a checkpoint folder, any Hugging Face folder, or the newest run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use ember_model::folder::refuse_irregular_files;

/// Where runs stand when nobody says otherwise.
pub const RUNS: &str = "runs";

/// A checkpoint folder, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The folder that holds `config.json` and the weights.
    pub folder: PathBuf,
    /// Why this one, for the user: "best of runs/a"; empty when it was named itself.
    pub reason: String,
}

/// Finds the checkpoint that `from` means: a folder with a `config.json` is one itself; of a run folder it is the `best`, else
/// the `latest`; without a `from` it is that of the run under `runs/` that was saved to last.
///
/// # Errors
/// One line that names the folder and says what it lacks.
pub fn find(from: Option<&Path>) -> Result<Found> {
    match from {
        Some(path) => find_in(path),
        None => newest_run(Path::new(RUNS)),
    }
}

fn find_in(path: &Path) -> Result<Found> {
    let name = path.display();
    if !path.exists() {
        let under_runs = Path::new(RUNS).join(path);
        if path.is_relative() && under_runs.is_dir() {
            bail!("{name} does not exist; did you mean {}?", under_runs.display());
        }
        bail!("{name} does not exist; name a run folder, a checkpoint folder or a Hugging Face folder");
    }
    ensure!(path.is_dir(), "{name} is a file; name the folder that holds config.json and model.safetensors");
    refuse_irregular_files(path)?;
    if path.join("config.json").is_file() {
        return Ok(Found { folder: path.to_owned(), reason: String::new() });
    }
    for pointer in ["best", "latest"] {
        if path.join(pointer).is_file() {
            return follow(path, pointer);
        }
    }
    if path.join("config.toml").is_file() || path.join("checkpoints").is_dir() {
        bail!("the run {name} has no checkpoint yet; wait for its first, or train on with ember-train resume {name}");
    }
    bail!("{name} is neither a run (it has no `best` or `latest`) nor a checkpoint (it has no config.json)")
}

/// The checkpoint that the run's text file `pointer` names.
fn follow(run: &Path, pointer: &str) -> Result<Found> {
    let file = run.join(pointer);
    let content = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = content.trim();
    // The file names a folder in `checkpoints/`; anything that leads elsewhere was not written by a run.
    let folder = run.join("checkpoints").join(Path::new(name).file_name().unwrap_or_default());
    ensure!(
        !name.is_empty() && folder.join("config.json").is_file(),
        "{} names \"{name}\", but {} is no checkpoint; write the name of one that is there into {pointer}, or give its folder",
        file.display(),
        folder.display()
    );
    refuse_irregular_files(&folder)?;
    Ok(Found { folder, reason: format!("{pointer} of {}", run.display()) })
}

fn newest_run(runs: &Path) -> Result<Found> {
    let name = runs.display();
    let advice = "train one with ember-train run, or name a folder with --from";
    ensure!(runs.is_dir(), "there is no folder {name} here; {advice}");
    let saved = |run: &Path| -> Option<SystemTime> {
        let time = |pointer| fs::metadata(run.join(pointer)).and_then(|file| file.modified()).ok();
        time("latest").max(time("best"))
    };
    let entries = fs::read_dir(runs).with_context(|| format!("cannot read {name}"))?;
    let newest = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|run| Some((saved(&run)?, run)))
        .max()
        .map(|(_, run)| run);
    let run = newest.with_context(|| format!("no run under {name} has a checkpoint yet; {advice}"))?;
    let found = find_in(&run)?;
    Ok(Found { reason: format!("{}, the newest run", found.reason), ..found })
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
    fn what_is_no_checkpoint_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        assert!(refused(&run.join("absent")).contains("absent does not exist"));
        assert!(refused(run).contains("neither a run"));
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
