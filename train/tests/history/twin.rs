//! The twin: the undisturbed run, the reference for every step of other runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ember_training::run::folder::{METRICS, SAMPLES, SAMPLES_LOG, checkpoint_name};
use ember_training::run::report::{Row, jsonl};
use ember_training::run::sample::Sample;
use ember_training::step::progress::{Evaluations, Progress};

use super::disk;
use super::history::{End, RUN, Session, Settings, Trains};
use super::library::scratch;

/// Length of the twin in steps; no other run is longer.
const LONGEST: u64 = 60;

/// An undisturbed run that saves, evaluates and samples at every step.
pub struct Twin {
    steps: Vec<Step>,
}

struct Step {
    files: BTreeMap<String, Arc<Vec<u8>>>,
    /// Its state before its evaluation.
    progress: Progress,
    trained: Row,
    evaluated: Row,
    samples: Vec<Sample>,
}

/// The files of a checkpoint that depend on more than its step: on evaluations and on times.
const RUN_SPECIFIC: [&str; 4] = ["checksums.json", "README.md", "training/state.json", "training/evaluations.json"];

impl Twin {
    /// Trains the twin, with or without an average of the weights.
    pub fn new(average: bool, trains: &dyn Trains) -> Self {
        let place = scratch();
        let settings = Settings { average, ..Settings::EVERY_STEP };
        let session = |end| trains.session(place.path(), &settings, &Session { max_steps: LONGEST, full: None, end });
        // The first session stops before its first step, so that step 0 is saved. The program does
        // not check for a stop that early, and never saves step 0.
        session(End::Stop(0));
        let ended = session(End::Done).ended;
        assert!(matches!(ended, Some(Ok(_))), "the twin failed: {ended:?}");
        let run = place.path().join(RUN);
        let rows: Vec<Row> = jsonl::read(&run.join(METRICS)).unwrap();
        let samples: Vec<Sample> = jsonl::read(&run.join(SAMPLES).join(SAMPLES_LOG)).unwrap();
        let row = |step: u64, is: fn(&Row) -> bool| {
            rows.iter().find(|row| row.step == step && is(row)).cloned().map(unmeasured).unwrap_or_default()
        };
        let step = |step: u64| {
            let files = disk::read(&run.join("checkpoints").join(checkpoint_name(step))).unwrap_or_default();
            let files = files.into_iter().filter_map(|(path, content)| Some((path, content?)));
            let (files, run_specific): (BTreeMap<_, _>, BTreeMap<_, _>) =
                files.partition(|(path, _)| !RUN_SPECIFIC.iter().any(|file| path.ends_with(file)));
            let state = run_specific.get("training/state.json");
            Step {
                files,
                progress: state.map(|json| serde_json::from_slice(json).unwrap()).unwrap_or_default(),
                trained: row(step, |row| row.train_loss.is_some()),
                evaluated: row(step, |row| row.val_loss.is_some()),
                samples: samples.iter().filter(|sample| sample.step == step).cloned().collect(),
            }
        };
        Self { steps: (0..=LONGEST).map(step).collect() }
    }

    /// The files of the checkpoint of `step` whose bytes depend on the step alone.
    pub fn files(&self, step: u64) -> &BTreeMap<String, Arc<Vec<u8>>> {
        &self.steps[step as usize].files
    }

    /// The validation loss of `step`.
    pub fn val_loss(&self, step: u64) -> f64 {
        self.steps[step as usize].evaluated.val_loss.unwrap_or(f64::NAN)
    }

    /// Sum and number of the training losses after step `from`, up to `to`.
    fn unreported(&self, from: u64, to: u64) -> (f64, u32) {
        let losses = (from + 1..=to).filter_map(|step| self.steps[step as usize].trained.train_loss);
        losses.fold((0.0, 0), |(sum, count), loss| (sum + loss, count + 1))
    }

    /// The rows of a run of `last` steps that logs and evaluates at these steps.
    pub fn rows(&self, logged: &BTreeSet<u64>, evaluated: &BTreeSet<u64>, last: u64) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut last_logged = 0;
        for (at, step) in self.steps.iter().enumerate().take(last as usize + 1).skip(1) {
            let at = at as u64;
            if logged.contains(&at) {
                let (sum, count) = self.unreported(last_logged, at);
                last_logged = at;
                rows.push(Row { train_loss: Some(sum / f64::from(count)), ..step.trained.clone() });
            }
            if evaluated.contains(&at) {
                rows.push(step.evaluated.clone());
            }
        }
        rows
    }

    /// The state at `step` of a run that logs at these steps and has these evaluations.
    pub fn progress(&self, step: u64, logged: &BTreeSet<u64>, evaluations: Evaluations) -> Progress {
        let last_logged = logged.range(..=step).next_back().copied().unwrap_or_default();
        let (unreported_loss, unreported_steps) = self.unreported(last_logged, step);
        let own = self.steps[step as usize].progress.clone();
        Progress { unreported_loss, unreported_steps, evaluations, elapsed_s: 0.0, ..own }
    }

    /// The samples of a run that samples at these steps.
    pub fn samples(&self, sampled: &BTreeSet<u64>) -> Vec<Sample> {
        sampled.iter().flat_map(|step| self.steps[*step as usize].samples.clone()).collect()
    }
}

/// A row without its measurements of time and memory.
pub fn unmeasured(row: Row) -> Row {
    let (tokens_per_s, mfu, memory_bytes, elapsed_s) = (None, None, None, None);
    Row { tokens_per_s, mfu, memory_bytes, elapsed_s, eval_s: None, save_s: None, sample_s: None, ..row }
}
