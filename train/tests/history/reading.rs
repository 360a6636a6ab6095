//! Reads the content of a run folder from a disk's tree.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use ember_training::run::folder::{CONFIG, checkpoint_name, step_of};
use ember_training::step::progress::Progress;
use serde::de::DeserializeOwned;

use super::disk::Tree;
use super::history::RUN;

/// The run's configured length in steps, once it has begun.
pub fn length(tree: &Tree) -> Option<u64> {
    text(tree, CONFIG).ok()?.lines().find_map(|line| line.strip_prefix("max_steps = ")?.trim().parse().ok())
}

/// The step that a pointer file names, if it exists.
pub fn named(tree: &Tree, pointer: &str) -> Option<u64> {
    step_of(Path::new(text(tree, pointer).ok()?.trim()))
}

/// The steps that have checkpoints.
pub fn checkpoints(tree: &Tree) -> BTreeSet<u64> {
    in_checkpoints(tree).filter_map(|name| step_of(Path::new(name))).collect()
}

/// The entries of the folder `checkpoints`.
pub fn in_checkpoints(tree: &Tree) -> impl Iterator<Item = &str> {
    let names = tree.keys().filter_map(|path| path.strip_prefix(RUN)?.strip_prefix("/checkpoints/"));
    names.filter(|name| !name.contains('/'))
}

/// The content of a file in the checkpoint of `step`.
pub fn file_of<'a>(tree: &'a Tree, step: u64, file: &str) -> Option<&'a Arc<Vec<u8>>> {
    tree.get(&format!("{RUN}/checkpoints/{}/{file}", checkpoint_name(step)))?.as_ref()
}

/// The training state in the checkpoint of `step`, including its evaluations.
///
/// # Errors
/// If the checkpoint has no valid state.
pub fn progress(tree: &Tree, step: u64) -> Result<Progress, String> {
    let text = |file| file_of(tree, step, file).map(|text| String::from_utf8_lossy(text));
    let state = text("training/state.json").ok_or_else(|| format!("step {step} has no state"))?;
    let mut progress: Progress = json(&state)?;
    if let Some(found) = text("training/evaluations.json") {
        progress.evaluations = json(&found)?;
    }
    Ok(Progress { elapsed_s: 0.0, ..progress })
}

/// The rows of a log of the run.
///
/// # Errors
/// If the log is missing or a row is broken.
pub fn logged_in<T: DeserializeOwned>(tree: &Tree, log: &str) -> Result<Vec<T>, String> {
    text(tree, log)?.lines().map(json).collect()
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{text}: {error}"))
}

/// The content of a file of the run.
fn text(tree: &Tree, file: &str) -> Result<String, String> {
    let content = tree.get(&format!("{RUN}/{file}")).and_then(Option::as_ref);
    content.map(|content| String::from_utf8_lossy(content).into_owned()).ok_or_else(|| format!("{file} is not there"))
}
