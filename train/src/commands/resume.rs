//! `ember-train resume`: takes a run up at its last checkpoint, to the numbers it would have had uninterrupted.

use anyhow::{Result, bail};
use ember_data::prepare::Dataset;
use ember_generate::interrupt::Interrupt;
use ember_generate::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_model::Gpt;
use ember_model::device::{self, Selected};

use super::run::model_config;
use super::session::{self, Session};
use crate::checkpoint::{self, Progress, Restored};
use crate::cli::ResumeArgs;
use crate::config::TrainConfig;
use crate::report::metrics;
use crate::run_folder::{Pointer, RunFolder};
use crate::team::messages::agree;
use crate::team::{self, Team, launch};

/// Runs the command.
///
/// # Errors
/// When the folder is no run, its data or checkpoint is missing or damaged, or something cannot be written.
pub fn run(args: &ResumeArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let team = team::join(interrupt)?;
    let common = &team::voice(&*team, common);
    let selected = agree(&*team, select(common))?;
    // Only the process that leads takes the run's lock and writes; the others read what it found in order.
    let run = if team.leads() { RunFolder::open(&args.run) } else { Ok(RunFolder::owned_elsewhere(&args.run)) };
    let run = agree(&*team, run)?;
    let (config, dataset, restored) = agree(&*team, restore(&run, &*team, &selected, common))?;
    let Restored { gpt, optimizer, progress } = restored;
    let cut = if team.leads() { metrics::cut_back(&run.metrics(), progress.step) } else { Ok(()) };
    agree(&*team, cut)?;
    Session { team, run, config, dataset, gpt, optimizer, progress, selected }.train(common, interrupt)
}

/// Checks the arguments and chooses the device.
fn select(common: &CommonArgs) -> Result<Selected> {
    if common.seed.is_some() {
        let line = "--seed cannot change in the middle of a run, which would no longer be the same run; leave it out";
        return Err(UsageError::new(line).into());
    }
    let selected = device::select(launch::device(common.device))?;
    session::say_device(&Notes::new(common.quiet), &selected);
    Ok(selected)
}

/// Reads the run: its configuration, its text, and where it stands.
fn restore(
    run: &RunFolder,
    team: &dyn Team,
    selected: &Selected,
    common: &CommonArgs,
) -> Result<(TrainConfig, Dataset, Restored)> {
    let notes = Notes::new(common.quiet);
    let config = TrainConfig::from_file(&run.config())?;
    team::share(team, 0, config.windows_per_step(), config.micro_batch)?;
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
    if *restored.gpt.config() != model_config(&config, &dataset) {
        bail!(
            "{}: its config.toml or data no longer describe the model in its checkpoint; put back what was changed",
            run.path().display()
        );
    }
    Ok((config, dataset, restored))
}
