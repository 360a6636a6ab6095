//! `ember-train resume`: takes a run up at its last checkpoint, to the numbers it would have had uninterrupted.

use anyhow::{Result, bail};
use ember_data::prepare::Dataset;
use ember_generate::interrupt::Interrupt;
use ember_generate::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_model::{Gpt, device};

use super::run::model_config;
use super::session::{self, Session};
use crate::checkpoint::{self, Progress, Restored};
use crate::cli::ResumeArgs;
use crate::config::TrainConfig;
use crate::report::metrics;
use crate::run_folder::{Pointer, RunFolder};

/// Runs the command.
///
/// # Errors
/// When the folder is no run, its data or checkpoint is missing or damaged, or something cannot be written.
pub fn run(args: &ResumeArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if common.seed.is_some() {
        let line = "--seed cannot change in the middle of a run, which would no longer be the same run; leave it out";
        return Err(UsageError::new(line).into());
    }
    let notes = Notes::new(common.quiet);
    let run = RunFolder::open(&args.run)?;
    let config = TrainConfig::from_file(&run.config())?;
    let selected = device::select(common.device)?;
    session::say_device(&notes, &selected);
    let dataset = Dataset::open(&session::data_folder(run.path(), &config.text))?;

    let training_device = selected.device.clone().autodiff();
    let optimizer = session::optimizer(&config);
    let restored = match run.pointed(Pointer::Latest)? {
        Some(folder) => {
            let restored = checkpoint::load(&folder, optimizer, &training_device)?;
            notes.say(format!("resuming {} at step {}", run.path().display(), restored.progress.step));
            restored
        }
        None => {
            notes.say(format!("{} has no checkpoint yet: it begins at step 0", run.path().display()));
            let gpt = Gpt::new(&model_config(&config, &dataset), config.seed, &training_device)?;
            Restored { gpt, optimizer, progress: Progress::default() }
        }
    };
    let Restored { gpt, optimizer, progress } = restored;
    if *gpt.config() != model_config(&config, &dataset) {
        bail!(
            "{}: its config.toml or data no longer describe the model in its checkpoint; put back what was changed",
            run.path().display()
        );
    }
    metrics::cut_back(&run.metrics(), progress.step)?;
    // A promise of time is of the session it was made in: what it had made of the length is in the configuration.
    let clock = None;
    Session { run, config, dataset, gpt, optimizer, progress, selected, clock }.train(common, interrupt)
}
