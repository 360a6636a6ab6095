//! What a model was trained on: from what the user calls a run to its prepared text.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use ember_data::prepare::Dataset;
use ember_decoding::run_folder;

use super::session::data_folder;
use ember_training::config::TrainConfig;

/// The prepared folder of `run`: a run's folder or a checkpoint in it, or what `prepare` made; without one, of the newest run.
///
/// # Errors
/// Names the folder, and says what it is not.
pub fn data_of(run: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = run {
        if Dataset::is_in(path) {
            return Ok(path.to_owned());
        }
        if path.join("config.toml").is_file() {
            return data_of_run(path); // also before its first checkpoint
        }
        if !path.exists() {
            bail!("{} does not exist; name a run's folder", path.display());
        }
    }
    let checkpoint = run_folder::find(run)?.folder;
    // RUN/checkpoints/step-N, or the averaged weights in it.
    let mut around = checkpoint.canonicalize()?;
    if around.ends_with("ema") {
        around.pop();
    }
    match around.parent().and_then(Path::parent) {
        Some(run) if run.join("config.toml").is_file() => data_of_run(run),
        _ => bail!(
            "{} is a checkpoint without its run, so what it was trained on is not known; name a run's folder",
            checkpoint.display()
        ),
    }
}

fn data_of_run(run: &Path) -> Result<PathBuf> {
    let config = TrainConfig::from_file(&run.join("config.toml"))?;
    Ok(data_folder(run, &config.text))
}
