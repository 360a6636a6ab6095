//! A run is taken up at its last checkpoint, to the numbers it would have had uninterrupted.

use std::path::Path;

use ember_data::prepare::Dataset;
use ember_model::device::Selected;

use super::checkpoint::{self, Restored};
use super::folder::{CONFIG, METRICS, RunFolder, step_of};
use super::init::{first_model, is_model_of};
use super::report::{Reporter, Row, jsonl, records};
use super::{Run, sample, text};
use crate::config::{TrainConfig, precision};
use crate::distributed::{ProcessGroup, all_ok, broadcast, share};
use crate::error::{CheckpointError, Error, LogError, Result, TextError};
use crate::memory::fit::{check_limits, keeps_freed_memory, share_of};
use crate::step::progress::{DataChecksums, Evaluations, Progress};
use crate::{memory, note::Note, step::optimizer::Optimizer};

/// Takes up the run in `path` where it stands, with each `key=value` of `changes` applied from here
/// on.
///
/// # Errors
/// When the folder is no run, its data or checkpoint is missing or damaged, a change is wrong, or
/// something cannot be written.
pub fn resume(
    path: &Path,
    changes: &[String],
    selected: Selected,
    group: &dyn ProcessGroup,
    reporter: &mut dyn Reporter,
) -> Result<Run> {
    // Only the process that leads takes the run's lock and writes; the others read what it found in
    // order, which a slow file system may not show them yet.
    let opened = if group.leads() { open(path, reporter) } else { Ok((RunFolder::owned_elsewhere(path), None)) };
    let (folder, latest) = all_ok(group, opened)?;
    let latest = broadcast(group, &latest)?;
    let restored = restore(&folder, latest, changes, group, &selected, reporter);
    let (config, dataset, restored) = all_ok(group, restored)?;
    let Restored { gpt, optimizer, progress } = restored;
    // What is decided by these is decided in step: all have them as the first reads them.
    let (config, progress) = broadcast(group, &(config, progress))?;
    let written = if group.leads() { write_back(&folder, &config, &progress, reporter) } else { Ok(()) };
    all_ok(group, written)?;
    // A promise of time is of the session it was made in: what it had made of the length is in the
    // configuration.
    Ok(Run { folder, config, dataset, gpt, optimizer, progress, selected, pause_at: None, time_budget: None })
}

/// Takes the run's lock, and lets `latest` name its newest whole checkpoint; its step. A log whose
/// rows cannot be read is refused first, before anything is changed.
fn open(path: &Path, reporter: &mut dyn Reporter) -> Result<(RunFolder, Option<u64>)> {
    let run = RunFolder::open(path)?;
    // Others have a file of this name too, and no run for having been looked at.
    TrainConfig::from_file(&run.file(CONFIG)).inspect_err(|_| run.remove_own_lock())?;
    jsonl::read::<Row>(&run.file(METRICS))?;
    let latest = checkpoint::newest_whole(&run, &mut |note| reporter.note(note))?;
    Ok((run, latest.as_deref().and_then(step_of)))
}

/// Reads the run: its configuration with what is to change in it, its text, and where it stands.
fn restore(
    run: &RunFolder,
    latest: Option<u64>,
    changes: &[String],
    group: &dyn ProcessGroup,
    selected: &Selected,
    reporter: &mut dyn Reporter,
) -> Result<(TrainConfig, Dataset, Restored)> {
    let before = TrainConfig::from_file(&run.file(CONFIG))?;
    // First, since what can be computed is a question of the changed precision.
    let config = before.changed(changes, latest.unwrap_or_default())?;
    share(group, 0, config.windows_per_step(), config.micro_batch)?;
    precision::check(config.precision, selected)?;
    let data = text::data_folder(run.path(), &config.text);
    let unreadable = |error| TextError::OfRun { run: run.path().to_owned(), source: Error::from(error).into() };
    let dataset = Dataset::open(&data).map_err(unreadable)?;
    let training_device = selected.device.clone().autodiff();
    let optimizer = Optimizer::new(&config);
    let shown = run.path().display();
    let restored = match latest {
        Some(latest) => {
            let mut restored = checkpoint::load(&run.checkpoint(latest), optimizer, &training_device)?;
            reporter.note(format!("resuming {shown} at step {}", restored.progress.step).into());
            if restored.progress.data.is_none() {
                restored.progress.evaluations = evaluations_of_log(run, latest)?;
            }
            let evaluations = &mut restored.progress.evaluations;
            if before.calibrate && evaluations.last == Some(latest) && evaluations.last_temperature.is_none() {
                evaluations.last_temperature = temperature_of_log(run, latest)?;
            }
            restored
        }
        None => {
            reporter.note(format!("{shown} has no checkpoint yet: it begins at step 0").into());
            let gpt = first_model(&config, &dataset, &training_device)?;
            Restored { gpt, optimizer, progress: Progress::default() }
        }
    };
    let learned = restored.progress.data.as_ref();
    if let Some(what) = learned.and_then(|learned| learned.difference(&DataChecksums::new(&dataset.manifest))) {
        return Err(CheckpointError::OtherText { data, what, run: run.path().to_owned() }.into());
    }
    let shape = restored.gpt.config();
    if !is_model_of(shape, &config, &dataset) {
        return Err(CheckpointError::OtherModel(run.path().to_owned()).into());
    }
    check_limits(config.precision, shape, selected)?;
    keeps_freed_memory(&share_of(&config, group.size()), shape, selected, memory::available(None, selected));
    if config.sample_prompts != before.sample_prompts {
        sample::check_prompts(&dataset.tokenizer, &config.sample_prompts)?;
    }
    if config.precision != before.precision {
        // Weights and moments are float32 in each of them.
        let (now, then) = (config.precision.name(), before.precision.name());
        let line = format!(
            "precision = {now} from here on, {then} until now: the run's numbers are no longer those of an uninterrupted one"
        );
        reporter.note(line.into());
    }
    if restored.progress.step == config.max_steps {
        reporter.note(format!("{shown} is at its end: a larger max_steps makes it longer").into());
    }
    Ok((config, dataset, restored))
}

/// The evaluations up to `step` as the log has them: checkpoints of earlier versions, which did not
/// keep their text's checksums either, have none in their state.
fn evaluations_of_log(run: &RunFolder, step: u64) -> Result<Evaluations, LogError> {
    let mut evaluations = Evaluations::default();
    for Row { step, val_loss, .. } in jsonl::read(&run.file(METRICS))?.into_iter().filter(|row: &Row| row.step <= step)
    {
        val_loss.map(|loss| evaluations.record(step, loss));
    }
    Ok(evaluations)
}

/// What the logits were divided by at `step`, as its evaluation has it in the log: earlier versions kept
/// it nowhere else.
fn temperature_of_log(run: &RunFolder, step: u64) -> Result<Option<f64>, LogError> {
    let rows: Vec<Row> = jsonl::read(&run.file(METRICS))?;
    Ok(rows.iter().rev().filter(|row| row.step == step).find_map(|row| row.temperature))
}

/// Takes away what was recorded after `progress`, and writes the changed configuration: last, so
/// that a run that cannot be taken up keeps the one it has.
fn write_back(run: &RunFolder, config: &TrainConfig, progress: &Progress, reporter: &mut dyn Reporter) -> Result<()> {
    let step = progress.step;
    for (newer, aside) in run.supersede_after(step)? {
        let (newer, aside) = (newer.display(), aside.display());
        let line = format!("{newer} is of a later step, which is taken again: it is put aside as {aside}");
        reporter.note(line.into());
    }
    records::cut_back(run, step, progress.evaluations.last == Some(step))?;
    if *config != TrainConfig::from_file(&run.file(CONFIG))? {
        run.write_config(config)?;
        // A run made longer than its schedule goes on at the lowest rate, which is seldom what was
        // meant.
        if config.schedule.comes_down() && config.max_steps > config.lr_decay_steps {
            reporter.note(Note::RateEnds { step: config.lr_decay_steps, rate: config.min_learning_rate });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use ember_model::device::{DeviceChoice, select};

    use super::*;
    use crate::config::Settings;
    use crate::distributed::Alone;
    use crate::run::report::Silent;
    use crate::run::{Start, Usual};

    /// Earlier versions kept the temperature of the last evaluation in the log alone.
    #[test]
    fn what_the_logits_were_divided_by_when_they_were_evaluated_is_known_of_runs_of_earlier_versions() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let settings = "stories = 100\nmax_steps = 4\nn_layer = 1\nn_head = 2\nn_embd = 16\ncontext_length = 16\n\
                        batch_size = 2\nsample_interval = 0\neval_interval = 2\ncalibrate = true\n";
        let settings = Settings::from_toml_str(settings).unwrap();
        let start = Start::new(settings, DeviceChoice::Cpu, None, &Usual, &mut Silent).unwrap();
        let run = start.begin(&path, &Alone, &Usual, &mut Silent).unwrap().unwrap();
        run.train(&Alone, &mut Silent, &|| false).unwrap();
        let kept = path.join("checkpoints/step-00000004/training/evaluations.json");
        let mut evaluations: serde_json::Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
        let was = evaluations.as_object_mut().unwrap().remove("last_temperature").unwrap();
        assert_ne!(was, evaluations["temperature"]);
        fs::write(&kept, evaluations.to_string()).unwrap();
        let run = resume(&path, &[], select(DeviceChoice::Cpu).unwrap(), &Alone, &mut Silent).unwrap();
        assert_eq!(run.progress.evaluations.last_temperature, was.as_f64());
    }
}
