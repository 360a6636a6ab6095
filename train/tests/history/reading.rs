//! What stands in a run's folder, read from a disk's tree.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use ember_training::run::folder::{CONFIG, checkpoint_name, step_of};
use ember_training::step::progress::Progress;
use serde::de::DeserializeOwned;

use super::disk::Tree;
use super::history::RUN;

/// The length that the run is to have, in steps, once it is begun.
pub fn length(tree: &Tree) -> Option<u64> {
    text(tree, CONFIG).ok()?.lines().find_map(|line| line.strip_prefix("max_steps = ")?.trim().parse().ok())
}

/// The step that a pointer names, if there is one.
pub fn named(tree: &Tree, pointer: &str) -> Option<u64> {
    step_of(Path::new(text(tree, pointer).ok()?.trim()))
}

/// The steps of which there are checkpoints.
pub fn checkpoints(tree: &Tree) -> BTreeSet<u64> {
    in_checkpoints(tree).filter_map(|name| step_of(Path::new(name))).collect()
}

/// The names in the folder of all checkpoints.
pub fn in_checkpoints(tree: &Tree) -> impl Iterator<Item = &str> {
    let names = tree.keys().filter_map(|path| path.strip_prefix(RUN)?.strip_prefix("/checkpoints/"));
    names.filter(|name| !name.contains('/'))
}

/// What a file of the checkpoint of `step` holds.
pub fn file_of<'a>(tree: &'a Tree, step: u64, file: &str) -> Option<&'a Arc<Vec<u8>>> {
    tree.get(&format!("{RUN}/checkpoints/{}/{file}", checkpoint_name(step)))?.as_ref()
}

/// Where the checkpoint of `step` stands, with what its own evaluation found.
///
/// # Errors
/// When it does not say so.
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
/// When it is not there, or one is broken.
pub fn logged_in<T: DeserializeOwned>(tree: &Tree, log: &str) -> Result<Vec<T>, String> {
    text(tree, log)?.lines().map(json).collect()
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{text}: {error}"))
}

/// What stands in a file of the run.
fn text(tree: &Tree, file: &str) -> Result<String, String> {
    let content = tree.get(&format!("{RUN}/{file}")).and_then(Option::as_ref);
    content.map(|content| String::from_utf8_lossy(content).into_owned()).ok_or_else(|| format!("{file} is not there"))
}
