//! `ember-train resume`: takes a run up at its last checkpoint, to the numbers it would have had uninterrupted.

use anyhow::{Result, bail};
use ember_data::files::write_atomic;
use ember_data::prepare::Dataset;
use ember_generate::interrupt::Interrupt;
use ember_generate::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_model::device;

use super::init::{first_model, is_model_of};
use super::session::{self, Session};
use crate::checkpoint::{self, Progress, Restored};
use crate::cli::ResumeArgs;
use crate::config::TrainConfig;
use crate::precision;
use crate::report::records;
use crate::run_folder::RunFolder;
use crate::schedule::Curve;

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
    let mut config = TrainConfig::from_file(&run.config())?;
    config.tensorboard |= args.tensorboard;
    let selected = device::select(common.device)?;
    session::say_device(&notes, &selected);
    precision::check(config.precision, &selected)?;
    let dataset = Dataset::open(&session::data_folder(run.path(), &config.text))?;

    let training_device = selected.device.clone().autodiff();
    let optimizer = session::optimizer(&config);
    let restored = match checkpoint::newest_whole(&run, |line| notes.say(line))? {
        Some(folder) => {
            let restored = checkpoint::load(&folder, optimizer, &training_device)?;
            notes.say(format!("resuming {} at step {}", run.path().display(), restored.progress.step));
            restored
        }
        None => {
            notes.say(format!("{} has no checkpoint yet: it begins at step 0", run.path().display()));
            let gpt = first_model(&config, &dataset, &training_device)?;
            Restored { gpt, optimizer, progress: Progress::default() }
        }
    };
    let Restored { gpt, optimizer, progress } = restored;
    let changed = config.changed(&args.set, progress.step)?;
    if !is_model_of(gpt.config(), &config, &dataset) {
        bail!(
            "{}: its config.toml or data no longer describe the model in its checkpoint; put back what was changed",
            run.path().display()
        );
    }
    if changed != config {
        let text = changed.to_toml()?;
        write_atomic(&run.config(), |file| Ok(file.write_all(text.as_bytes())?))?;
        say_where_the_rate_ends(&changed, &notes);
    }
    let config = changed;
    records::cut_back(&run, progress.step)?;
    Session { run, config, dataset, gpt, optimizer, progress, selected, pause_at: None }.train(common, interrupt)
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
