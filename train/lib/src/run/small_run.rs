//! A very short run, for tests of a run's files.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use ember_model::device::DeviceChoice;

use super::report::Silent;
use super::{DefaultHooks, Run, Start};
use crate::config::Settings;
use crate::distributed::Alone;

/// The smallest model that has every part, on little text.
const SMALL: &str = "stories = 100\nn_layer = 1\nn_head = 2\nn_embd = 16\ncontext_length = 16\nbatch_size = 2\n";

/// A small run in `path`, before its first step, with these settings (TOML) beside its size.
pub fn begin(path: &Path, settings: &str) -> Run {
    let settings = Settings::from_toml_str(&format!("{SMALL}{settings}")).unwrap();
    let start = Start::new(settings, DeviceChoice::Cpu, None, &DefaultHooks, &mut Silent).unwrap();
    start.begin(path, &Alone, &DefaultHooks, &mut Silent).unwrap().unwrap()
}

/// Trains it to its end.
pub fn train(run: Run) {
    run.train(&Alone, &mut Silent, &|| false).unwrap();
}
