//! Resumes a run from its last checkpoint, with the same results as an uninterrupted run.

use std::path::Path;

use ember_data::prepare::Dataset;
use ember_model::GptConfig;
use ember_model::device::{PROCESSOR, Selected};

use super::checkpoint::{self, Restored};
use super::folder::{CONFIG, METRICS, RunFolder, step_of};
use super::init::{initial_model, is_model_of};
use super::report::{Reporter, Row, RunFacts, jsonl, records};
use super::{Run, sample, text};
use crate::config::{Precision, TrainConfig, precision};
use crate::distributed::{ProcessGroup, all_ok, broadcast, share};
use crate::error::{CheckpointError, Error, Result, TextError};
use crate::memory::fit::{RETURNS_FREED_MEMORY, check_limits, keeps_freed_memory, share_of, warning_at_resume};
use crate::memory::keeping::give_back_freed_memory;
use crate::step::progress::{DataChecksums, Progress};
use crate::{memory, note::Note, step::optimizer::Optimizer};

/// Resumes the run in `path`, with each `key=value` of `changes` applied from here on. Warns if
/// training needs more than `memory_limit` bytes or, without one, than the available memory.
///
/// # Errors
/// When the folder is no run, its data or checkpoint is missing or damaged, a change is wrong, or
/// something cannot be written.
pub fn resume(
    path: &Path,
    changes: &[String],
    selected: Selected,
    memory_limit: Option<u64>,
    group: &dyn ProcessGroup,
    reporter: &mut dyn Reporter,
) -> Result<Run> {
    // Only rank 0 takes the run's lock and writes. The others load the step that rank 0 has
    // verified: a slow file system may not show them the newest pointer yet.
    let opened = if group.leads() { open(path, reporter) } else { Ok((RunFolder::owned_elsewhere(path), None, None)) };
    let (folder, latest, began) = all_ok(group, opened)?;
    let latest = broadcast(group, &latest)?;
    let restored = restore(&folder, latest, changes, group, &selected, memory_limit, reporter);
    let (config, dataset, restored) = all_ok(group, restored)?;
    let Restored { gpt, optimizer, progress } = restored;
    // All processes use rank 0's values, so that they make the same decisions.
    let (config, progress) = broadcast(group, &(config, progress))?;
    // After the changes: which instructions matter depends on the precision from here on.
    let simd = precision::simd(&selected.device);
    let other = began.and_then(|began| other_device(&began, &selected.name, simd, config.precision));
    other.into_iter().for_each(|line| reporter.note(line.into()));
    let written = if group.leads() { write_back(&folder, &config, &progress, reporter) } else { Ok(()) };
    all_ok(group, written)?;
    // A time budget applies to the session it was given in only; the length it decided is in the
    // configuration.
    Ok(Run { folder, config, dataset, gpt, optimizer, progress, selected, pause_at: None, time_budget: None })
}

/// A run's folder, the step of its newest undamaged checkpoint and, if there is one, what the log
/// says of the run's beginning.
type Opened = (RunFolder, Option<u64>, Option<RunFacts>);

/// Takes the run's lock, and points `latest` to the newest undamaged checkpoint. A log that cannot be
/// read is refused before anything is changed.
fn open(path: &Path, reporter: &mut dyn Reporter) -> Result<Opened> {
    let run = RunFolder::open(path)?;
    // Other programs use the name config.toml too: leave no lock in a folder that is no run.
    let config = TrainConfig::from_file(&run.file(CONFIG)).inspect_err(|_| run.remove_own_lock())?;
    let rows: Vec<Row> = jsonl::read(&run.file(METRICS))?;
    run.tidy();
    let latest = checkpoint::newest_whole(&run, &mut |note| reporter.note(note))?;
    let latest = latest.as_deref().and_then(step_of);
    if let Some(decided) = latest.and_then(|latest| length_decided_after(&rows, latest, &config)) {
        let length = config.lr_decay_steps;
        let line = format!(
            "its length of {length} steps was set at step {decided}, after the checkpoint that is resumed: results may differ \
             from an uninterrupted run's"
        );
        reporter.note(line.into());
    }
    let began = latest.and_then(|_| rows.into_iter().next()?.run);
    Ok((run, latest, began))
}

/// A note if the device that the run began on, and that of this `name` and instruction set, round
/// differently. The number of a processor's threads changes no bits; its instructions do, those for
/// bfloat16 only where the `products` have that type.
fn other_device(began: &RunFacts, name: &str, simd: Option<&str>, products: Precision) -> Option<String> {
    let names = [began.device.as_str(), name];
    let differ = |began_on: &str, now: &str| {
        format!("the run began on {began_on} and is resumed on {now}: results will differ from an uninterrupted run's")
    };
    if names.iter().all(|name| name.starts_with(PROCESSOR)) {
        let [before, now] = [began.simd.as_deref()?, simd?].map(|set| match products {
            Precision::Bf16 => set,
            _ => set.trim_end_matches("_bf16"),
        });
        let line = differ(&format!("{PROCESSOR} with {before}"), &format!("{PROCESSOR} with {now}"));
        // No promise of the same results: another session may have had other instructions since.
        let uses = |setting: String| format!("; {setting} uses the instructions that it began with");
        let remedy = precision::simd_setting(before, now).map(uses);
        return (before != now).then(|| line + &remedy.unwrap_or_default());
    }
    (!names[0].is_empty() && names[0] != name).then(|| differ(names[0], name))
}

/// Reads the run: its configuration with the changes, its text, and its checkpoint.
fn restore(
    run: &RunFolder,
    latest: Option<u64>,
    changes: &[String],
    group: &dyn ProcessGroup,
    selected: &Selected,
    memory_limit: Option<u64>,
    reporter: &mut dyn Reporter,
) -> Result<(TrainConfig, Dataset, Restored)> {
    let before = TrainConfig::from_file(&run.file(CONFIG))?;
    // First, because the following checks depend on the changed precision.
    let config = before.changed(changes, latest.unwrap_or_default())?;
    share(group, 0, config.windows_per_step(), config.micro_batch)?;
    precision::check(config.precision, selected)?;
    let data = text::data_folder(run.path(), &config.text);
    let unreadable = |error| TextError::OfRun { run: run.path().to_owned(), source: Error::from(error).into() };
    let dataset = Dataset::open(&data).map_err(unreadable)?;
    // Before the checkpoint is loaded: the predicted need contains it.
    give_back_freed_memory();
    let memory = memory::available(memory_limit, selected);
    let training_device = selected.device.clone().autodiff();
    let shown = run.path().display();
    let (restored, line) = match latest {
        Some(latest) => {
            let restored = checkpoint::load(&run.checkpoint(latest), Optimizer::new(&config), &training_device)?;
            (restored, format!("resuming {shown} at step {latest}"))
        }
        None => {
            let (gpt, optimizer) = (initial_model(&config, &dataset, &training_device)?, Optimizer::new(&config));
            let restored = Restored { gpt, optimizer, progress: Progress::default() };
            (restored, format!("{shown} has no checkpoint yet: it begins at step 0"))
        }
    };
    reporter.note(line.into());
    check_belongs_to_run(run, &config, &dataset, &data, &restored)?;
    let shape = restored.gpt.config();
    check_limits(config.precision, shape, selected)?;
    note_memory(&share_of(&config, group.size()), shape, selected, memory, reporter);
    if config.sample_prompts != before.sample_prompts {
        sample::check_prompts(&dataset.tokenizer, &config.sample_prompts)?;
    }
    note_consequences(run, &before, &config, restored.progress.step, reporter);
    Ok((config, dataset, restored))
}

/// Refuses a checkpoint that was trained on another text than the one in `data`, or whose model
/// does not match the run's configuration and text.
fn check_belongs_to_run(
    run: &RunFolder,
    config: &TrainConfig,
    dataset: &Dataset,
    data: &Path,
    restored: &Restored,
) -> Result<(), CheckpointError> {
    let (data, run) = (data.to_owned(), run.path().to_owned());
    let learned = restored.progress.data.as_ref();
    if let Some(what) = learned.and_then(|learned| learned.difference(&DataChecksums::new(&dataset.manifest))) {
        return Err(CheckpointError::OtherText { data, what, run });
    }
    if !is_model_of(restored.gpt.config(), config, dataset) {
        return Err(CheckpointError::OtherModel(run));
    }
    Ok(())
}

/// Warns if training by `config` needs more than the available `memory`.
fn note_memory(
    config: &TrainConfig,
    shape: &GptConfig,
    selected: &Selected,
    memory: Option<u64>,
    reporter: &mut dyn Reporter,
) {
    if let Some(warning) = warning_at_resume(config, shape, selected, memory) {
        reporter.note(warning.into());
    }
    if !keeps_freed_memory(config, shape, selected, memory) {
        reporter.note(RETURNS_FREED_MEMORY.into());
    }
}

/// Tells the user about consequences of a changed precision, and about a run that is at its end.
fn note_consequences(
    run: &RunFolder,
    before: &TrainConfig,
    config: &TrainConfig,
    step: u64,
    reporter: &mut dyn Reporter,
) {
    if config.precision != before.precision {
        // Weights and moments are float32 in every precision.
        let (now, then) = (config.precision.name(), before.precision.name());
        let line = format!(
            "precision = {now} from here on, {then} until now: results will differ from an uninterrupted run's"
        );
        reporter.note(line.into());
    }
    if step == config.max_steps {
        let shown = run.path().display();
        reporter.note(format!("{shown} is complete; set a larger max_steps to train longer").into());
    }
}

/// The step after `step` at which a time budget moved the end of the schedule to where it is now,
/// if one did. The checkpoint of that step is damaged, or could not be saved on a full disk.
fn length_decided_after(rows: &[Row], step: u64, config: &TrainConfig) -> Option<u64> {
    // If only the end of the run was moved, no learning rate changed.
    let moved = |row: &&Row| row.step > step && row.max_steps == Some(config.lr_decay_steps);
    let moved = rows.iter().rev().find(moved).map(|row| row.step);
    moved.filter(|_| config.schedule.comes_down())
}

/// Removes what was recorded after `progress`, and writes the changed configuration: last, so that
/// a run that cannot be resumed keeps its old one.
fn write_back(run: &RunFolder, config: &TrainConfig, progress: &Progress, reporter: &mut dyn Reporter) -> Result<()> {
    let step = progress.step;
    for (newer, aside) in run.supersede_after(step)? {
        let (newer, aside) = (newer.display(), aside.display());
        let line = format!("{newer} is of a later step, which will be repeated; set aside as {aside}");
        reporter.note(line.into());
    }
    records::cut_back(run, step, progress.evaluations.last == Some(step))?;
    let before = TrainConfig::from_file(&run.file(CONFIG))?;
    if *config != before {
        run.write_config(config)?;
        // A run extended beyond its schedule goes on at the lowest rate, which is seldom intended.
        if config.schedule.comes_down() && config.max_steps > config.lr_decay_steps {
            reporter.note(Note::RateEnds { step: config.lr_decay_steps, rate: config.min_learning_rate });
        }
        if let Some(line) = ends_early(config, &before) {
            reporter.note(line.into());
        }
    }
    Ok(())
}

/// A line on a run that is made so short that its learning rate will not have come down.
fn ends_early(config: &TrainConfig, before: &TrainConfig) -> Option<String> {
    let TrainConfig { max_steps, lr_decay_steps, .. } = config;
    let is_cut = *max_steps < before.max_steps && max_steps < lr_decay_steps && config.schedule.comes_down();
    is_cut.then(|| {
        format!(
            "the run ends at step {max_steps} of a schedule of {lr_decay_steps}: its learning rate will not have come \
             down; to change that, set lr_decay_steps = {max_steps}"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use ember_kernels::simd::Level;
    use ember_model::device::{DeviceChoice, select};
    use ember_model::folder::write_checksums;
    use serde_json::Value;

    use super::*;
    use crate::config::{DeviceKind, Settings, TextFacts};
    use crate::distributed::Alone;
    use crate::note::line;
    use crate::run::report::Silent;
    use crate::run::small_run;

    /// The last checkpoint of a run of four steps.
    const LAST: &str = "checkpoints/step-00000004";

    /// Trains a run of four steps in `path`, then applies `change` to the state in its last
    /// checkpoint.
    fn run_with_state(path: &Path, change: impl FnOnce(&mut Value)) {
        let settings = "max_steps = 4\nsample_interval = 0\neval_interval = 2\ncalibrate = true\n";
        small_run::train(small_run::begin(path, settings));
        let mut state = state_of(path);
        change(&mut state);
        set_state(path, &state);
    }

    /// The state in the last checkpoint of the run in `path`.
    fn state_of(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path.join(LAST).join("training/state.json")).unwrap()).unwrap()
    }

    fn set_state(path: &Path, state: &Value) {
        fs::write(path.join(LAST).join("training/state.json"), state.to_string()).unwrap();
        write_checksums(&path.join(LAST)).unwrap();
    }

    fn resumed(path: &Path, reporter: &mut dyn Reporter) -> Result<Run> {
        resume(path, &["max_steps=5".to_owned()], select(DeviceChoice::Cpu).unwrap(), None, &Alone, reporter)
    }

    #[test]
    fn a_state_of_a_version_that_kept_less_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        run_with_state(&path, |_| {});
        let whole = state_of(&path);
        for of in ["", "/data", "/evaluations", "/guard", "/loss_scale"] {
            let keys = whole.pointer(of).unwrap().as_object().unwrap().keys();
            for key in keys.filter(|key| !["windows_per_pass", "tuned"].contains(&key.as_str())) {
                let mut state = whole.clone();
                state.pointer_mut(of).unwrap().as_object_mut().unwrap().remove(key);
                set_state(&path, &state);
                let error = line(&resumed(&path, &mut Silent).map(drop).unwrap_err());
                let because = format!("missing field `{key}`");
                assert!(
                    error.contains("step-00000004 was saved by another version") && error.contains(&because),
                    "{of}/{key}: {error}"
                );
            }
        }
    }

    /// Other programs use the name config.toml too, and runs below may be saving a checkpoint now.
    #[test]
    fn a_folder_that_is_no_run_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let being_saved = place.path().join("runs/mine/checkpoints/.unfinished-5");
        fs::create_dir_all(&being_saved).unwrap();
        fs::write(place.path().join(CONFIG), "n_layer = 1\n").unwrap();
        assert!(resumed(place.path(), &mut Silent).is_err());
        assert!(being_saved.is_dir() && !place.path().join(".lock").exists());
    }

    /// Collects a run's notes, one line each.
    #[derive(Default)]
    struct Notes(Vec<String>);

    impl Reporter for Notes {
        fn note(&mut self, note: Note) {
            self.0.push(note.to_string());
        }
    }

    #[test]
    fn a_run_that_goes_on_on_another_device_is_told_of() {
        for (began_on, is_reported) in [("A card of 1999", true), ("the processor, 128 threads", false), ("", false)] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("run");
            run_with_state(&path, |_| {});
            let log = fs::read_to_string(path.join(METRICS)).unwrap();
            let selected = select(DeviceChoice::Cpu).unwrap();
            assert!(log.contains(&selected.name), "{log}");
            fs::write(path.join(METRICS), log.replacen(&selected.name, began_on, 1)).unwrap();
            let mut notes = Notes::default();
            resumed(&path, &mut notes).unwrap();
            let expected = format!("the run began on {began_on} and is resumed on {}: ", selected.name);
            let lines = notes.0.iter().filter(|line| line.starts_with(&expected));
            assert_eq!(lines.count(), usize::from(is_reported), "{:?}", notes.0);
        }
    }

    /// In the log of an older version there are none.
    #[test]
    fn a_run_that_goes_on_with_other_instructions_is_told_of() {
        let own = precision::simd(&select(DeviceChoice::Cpu).unwrap().device).unwrap();
        for (began_with, is_reported) in [("\"simd\":\"mmx\",", true), ("\"simd\":null,", false), ("", false)] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("run");
            run_with_state(&path, |_| {});
            let log = fs::read_to_string(path.join(METRICS)).unwrap();
            let logged = format!("\"simd\":\"{own}\",");
            assert!(log.contains(&logged), "{log}");
            fs::write(path.join(METRICS), log.replacen(&logged, began_with, 1)).unwrap();
            let mut notes = Notes::default();
            resumed(&path, &mut notes).unwrap();
            let expected = "the run began on the processor with mmx and is resumed on the processor with ";
            let lines = notes.0.iter().filter(|line| line.starts_with(expected));
            assert_eq!(lines.count(), usize::from(is_reported), "{:?}", notes.0);
        }
    }

    #[test]
    fn instructions_for_bfloat16_matter_to_products_in_it_alone() {
        let began = RunFacts { device: PROCESSOR.to_owned(), simd: Some("avx512".to_owned()), ..RunFacts::default() };
        let differs = |set: &str, products| other_device(&began, PROCESSOR, Some(set), products).is_some();
        assert!(!differs("avx512", Precision::Bf16) && differs("avx512_bf16", Precision::Bf16));
        assert!(!differs("avx512_bf16", Precision::F32) && differs("avx2", Precision::F32));
    }

    /// Whatever precision the run had before. The two sets differ only in what they have for bfloat16.
    #[test]
    fn the_precision_that_a_run_goes_on_with_decides_which_instructions_matter() {
        let own = precision::simd(&select(DeviceChoice::Cpu).unwrap().device).unwrap();
        let other = own.strip_suffix("_bf16").map_or_else(|| format!("{own}_bf16"), str::to_owned);
        for (now, is_reported) in [("bf16", true), ("f32", false)] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("run");
            run_with_state(&path, |_| {});
            let log = fs::read_to_string(path.join(METRICS)).unwrap();
            let [logged, changed] = [own, other.as_str()].map(|set| format!("\"simd\":\"{set}\","));
            assert!(log.contains(&logged), "{log}");
            fs::write(path.join(METRICS), log.replacen(&logged, &changed, 1)).unwrap();
            let (changes, mut notes) = ([format!("precision={now}")], Notes::default());
            resume(&path, &changes, select(DeviceChoice::Cpu).unwrap(), None, &Alone, &mut notes).unwrap();
            let lines = notes.0.iter().filter(|line| line.starts_with("the run began on "));
            assert_eq!(lines.count(), usize::from(is_reported), "{now}: {:?}", notes.0);
        }
    }

    #[test]
    fn who_can_have_the_instructions_that_a_run_began_with_is_told_how() {
        let own = Level::Portable.arithmetic();
        let foreign = if own == "portable" { "portable_fma" } else { "portable" };
        for (before, now, products, setting) in [
            ("avx2", "avx512", Precision::F32, Some("EMBER_SIMD=avx2")),
            (own, "avx512_bf16", Precision::Bf16, Some("EMBER_SIMD=portable")),
            (foreign, "avx512_bf16", Precision::Bf16, None),
            (foreign, own, Precision::F32, None),
            ("avx512", "avx512_bf16", Precision::Bf16, None),
            ("avx512_bf16", "avx2", Precision::F32, None),
            ("mmx", "avx2", Precision::F32, None),
        ] {
            let began = RunFacts { device: PROCESSOR.to_owned(), simd: Some(before.to_owned()), ..RunFacts::default() };
            let note = other_device(&began, PROCESSOR, Some(now), products).unwrap();
            let told = note.split_once("; ").map(|(_, told)| told.to_owned());
            let expected = setting.map(|setting| format!("{setting} uses the instructions that it began with"));
            assert_eq!(told, expected, "{note}");
        }
    }

    /// A checkpoint of the version before does not have this number, so there is no note.
    #[test]
    fn windows_that_another_version_has_cut_otherwise_are_told_of() {
        for (kept, is_reported) in [(Some(7), true), (None, false)] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("run");
            run_with_state(&path, |state| {
                let state = state.as_object_mut().unwrap();
                let own = state.remove("windows_per_pass").unwrap();
                assert!(own.as_u64().unwrap() > 7);
                state.extend(kept.map(|kept: u64| ("windows_per_pass".to_owned(), kept.into())));
            });
            let mut notes = Notes::default();
            let run = resumed(&path, &mut notes).unwrap();
            run.train(&Alone, &mut notes, &|| false).unwrap();
            let lines = notes.0.iter().filter(|line| line.contains("into 7 windows per pass over it, this one into "));
            assert_eq!(lines.count(), usize::from(is_reported), "{:?}", notes.0);
        }
    }

    #[test]
    fn a_run_that_needs_more_memory_than_there_is_is_told_of() {
        let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size: 65 };
        let (config, _) = Settings::from_toml_str("max_steps = 25").unwrap().resolve(&facts, DeviceKind::Cpu).unwrap();
        let notes_with = |memory: Option<u64>| {
            let mut notes = Notes::default();
            note_memory(&config, &config.shape(65), &select(DeviceChoice::Cpu).unwrap(), memory, &mut notes);
            notes.0
        };
        let short = notes_with(Some(1000));
        assert!(short[0].starts_with("the run needs about ") && short[1] == RETURNS_FREED_MEMORY, "{short:?}");
        assert!(short[0].contains(" and 1.0 kB are available; free some, or resume it on"), "{short:?}");
        assert!(notes_with(Some(1 << 40)).is_empty() && notes_with(None).is_empty());
    }

    #[test]
    fn a_run_that_is_cut_short_of_its_schedule_is_told_of() {
        let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size: 65 };
        let config =
            |settings: &str| Settings::from_toml_str(settings).unwrap().resolve(&facts, DeviceKind::Cpu).unwrap().0;
        let line = |before: &str, now: &str| ends_early(&config(now), &config(before));
        let whole = "max_steps = 100\nlr_decay_steps = 100";
        let told = line(whole, "max_steps = 60\nlr_decay_steps = 100").unwrap();
        assert!(told.starts_with("the run ends at step 60 of a schedule of 100: "), "{told}");
        assert_eq!(line(whole, "max_steps = 60\nlr_decay_steps = 60"), None);
        assert_eq!(line(whole, "max_steps = 120\nlr_decay_steps = 140"), None, "made longer");
        let constant = |steps| format!("max_steps = {steps}\nlr_decay_steps = 100\nschedule = \"constant\"");
        assert_eq!(line(&constant(100), &constant(60)), None);
    }

    /// The configuration alone has the final length of a run with a time budget; an older
    /// checkpoint was trained with the learning rates of another length.
    #[test]
    fn a_length_that_was_decided_after_the_checkpoint_is_known() {
        let lines = ["{\"step\":10,\"max_steps\":40}", "{\"step\":20,\"max_steps\":25}"];
        let rows = lines.map(|line| serde_json::from_str::<Row>(line).unwrap());
        let decided_after = |step: u64, schedule: &str| {
            let settings = format!("max_steps = 25\nlr_decay_steps = 40\nschedule = \"{schedule}\"");
            let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size: 65 };
            let (config, _) = Settings::from_toml_str(&settings).unwrap().resolve(&facts, DeviceKind::Cpu).unwrap();
            length_decided_after(&rows, step, &config)
        };
        assert_eq!(decided_after(5, "wsd"), Some(10));
        assert_eq!(decided_after(10, "wsd"), None, "where only the end was moved later");
        assert_eq!(decided_after(5, "constant"), None);
    }
}
