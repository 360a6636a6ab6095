//! `ember-train resume`: takes a run up at its last checkpoint, to the numbers it would have had uninterrupted.

use std::path::Path;

use anyhow::{Context, Result, bail};
use ember_cli::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_data::prepare::Dataset;
use ember_host::interrupt::Interrupt;
use ember_model::device::{self, Selected};

use super::fitting::{check_attention, keeps_freed_memory};
use super::init::{first_model, is_model_of};
use super::session::{self, Session};
use crate::cli::ResumeArgs;
use ember_training::checkpoint::{self, DataChecksums, Progress, Restored};
use ember_training::config::TrainConfig;
use ember_training::evaluations::Evaluations;
use ember_training::memory;
use ember_training::memory::fit::share_of;
use ember_training::optimizer::Optimizer;
use ember_training::precision;
use ember_training::report::{Row, jsonl, records};
use ember_training::run_folder::{RunFolder, checkpoint_name, step_of};
use ember_training::schedule::Curve;
use ember_training::team::messages::{agree, said_by_the_first};
use ember_training::team::{self, Team, launch};

/// Runs the command.
///
/// # Errors
/// When the folder is no run, its data or checkpoint is missing or damaged, or something cannot be written.
pub fn run(args: &ResumeArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let team = team::join(interrupt)?;
    let common = &team::voice(&*team, common);
    let selected = agree(&*team, select(common))?;
    // Only the process that leads takes the run's lock and writes; the others read what it found in order, which a slow file
    // system may not show them yet.
    let opened = if team.leads() { open(args, common) } else { Ok((RunFolder::owned_elsewhere(&args.run), None)) };
    let (run, latest) = agree(&*team, opened)?;
    let latest = said_by_the_first(&*team, &latest.map(checkpoint_name).unwrap_or_default())?;
    let latest = step_of(Path::new(&latest));
    let (config, dataset, restored) = agree(&*team, restore(args, &run, latest, &*team, &selected, common))?;
    let Restored { gpt, optimizer, progress } = restored;
    // What is decided by these is decided in step: all have them as the first reads them.
    let config = TrainConfig::from_toml_str(&said_by_the_first(&*team, &config.to_toml()?)?)?;
    let progress: Progress = serde_json::from_str(&said_by_the_first(&*team, &serde_json::to_string(&progress)?)?)?;
    // A promise of time is of the session it was made in: what it had made of the length is in the configuration.
    let (pause_at, clock) = (None, None);
    let written = if team.leads() { write_back(&run, &config, &progress, common) } else { Ok(()) };
    agree(&*team, written)?;
    Session { team, run, config, dataset, gpt, optimizer, progress, selected, pause_at, clock }.train(common, interrupt)
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

/// Takes the run's lock, and lets `latest` name its newest whole checkpoint; its step.
fn open(args: &ResumeArgs, common: &CommonArgs) -> Result<(RunFolder, Option<u64>)> {
    let notes = Notes::new(common.quiet);
    let run = RunFolder::open(&args.run)?;
    let latest = checkpoint::newest_whole(&run, |line| notes.say(line))?;
    Ok((run, latest.as_deref().and_then(step_of)))
}

/// Reads the run: its configuration with what is to change in it, its text, and where it stands.
fn restore(
    args: &ResumeArgs,
    run: &RunFolder,
    latest: Option<u64>,
    team: &dyn Team,
    selected: &Selected,
    common: &CommonArgs,
) -> Result<(TrainConfig, Dataset, Restored)> {
    let notes = Notes::new(common.quiet);
    let mut config = TrainConfig::from_file(&run.config())?;
    team::share(team, 0, config.windows_per_step(), config.micro_batch)?;
    precision::check(config.precision, selected)?;
    let folder = session::data_folder(run.path(), &config.text);
    let dataset = Dataset::open(&folder).with_context(|| format!("the text of {}", run.path().display()))?;
    let training_device = selected.device.clone().autodiff();
    let optimizer = Optimizer::new(config.optimizer());
    let restored = match latest {
        Some(latest) => {
            let mut restored = checkpoint::load(&run.checkpoint(latest), optimizer, &training_device)?;
            notes.say(format!("resuming {} at step {}", run.path().display(), restored.progress.step));
            if restored.progress.data.is_none() {
                restored.progress.evaluations = evaluations_of_log(run, latest)?;
            }
            restored
        }
        None => {
            notes.say(format!("{} has no checkpoint yet: it begins at step 0", run.path().display()));
            let gpt = first_model(&config, &dataset, &training_device)?;
            Restored { gpt, optimizer, progress: Progress::default() }
        }
    };
    let learned = restored.progress.data.as_ref();
    if let Some(what) = learned.and_then(|learned| learned.difference(&DataChecksums::of(&dataset.manifest))) {
        bail!(
            "{} has another {what} than the one that {run} has learned from; put the folder back as it was, or begin a new run \
             with --init {run}",
            folder.display(),
            run = run.path().display()
        );
    }
    if !is_model_of(restored.gpt.config(), &config, &dataset) {
        bail!(
            "{}: its config.toml or data no longer describe the model in its checkpoint; put back what was changed",
            run.path().display()
        );
    }
    check_attention(config.precision, restored.gpt.config(), selected)?;
    keeps_freed_memory(
        &share_of(&config, team.size()),
        restored.gpt.config(),
        selected,
        memory::available(None, selected),
    );
    config = config.changed(&args.set, restored.progress.step)?;
    config.tensorboard |= args.tensorboard;
    Ok((config, dataset, restored))
}

/// The evaluations up to `step` as the log has them: checkpoints of earlier versions, which did not keep their text's checksums
/// either, have none in their state.
fn evaluations_of_log(run: &RunFolder, step: u64) -> Result<Evaluations> {
    let mut evaluations = Evaluations::default();
    for Row { step, val_loss, .. } in jsonl::read(&run.metrics())?.into_iter().filter(|row: &Row| row.step <= step) {
        val_loss.map(|loss| evaluations.record(step, loss));
    }
    Ok(evaluations)
}

/// Writes the changed configuration, and takes away what was recorded after `progress`.
fn write_back(run: &RunFolder, config: &TrainConfig, progress: &Progress, common: &CommonArgs) -> Result<()> {
    let step = progress.step;
    if *config != TrainConfig::from_file(&run.config())? {
        run.write_config(config)?;
        say_where_the_rate_ends(config, &Notes::new(common.quiet));
    }
    for (newer, aside) in run.supersede_after(step)? {
        let (newer, aside) = (newer.display(), aside.display());
        Notes::new(common.quiet)
            .say(format!("{newer} is of a later step, which is taken again: it is put aside as {aside}"));
    }
    records::cut_back(run, step, progress.evaluations.last == Some(step))
}

/// A run made longer than its schedule goes on at the lowest rate, which is seldom what was meant.
fn say_where_the_rate_ends(config: &TrainConfig, notes: &Notes) {
    if config.schedule != Curve::Constant && config.max_steps > config.lr_decay_steps {
        notes.say(format!(
            "from step {} on the learning rate stays at {}; --set lr_decay_steps=N moves that",
            config.lr_decay_steps, config.min_learning_rate
        ));
    }
}
