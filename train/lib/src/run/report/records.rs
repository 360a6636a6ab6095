//! The records that a run writes while it learns: `metrics.jsonl`, the samples, and TensorBoard's
//! files if enabled. All are appended to; [`cut_back`] removes the part that a resumed run will
//! repeat.

use std::{fs, path::Path};

use ember_host::file_error::At;
use ember_host::files::{make_folder_of, write_text};

use super::jsonl;
use super::metrics::{Row, RunFacts};
use super::tensorboard::{EventFile, Events, has_events};
use crate::error::{LogError, Result};
use crate::note::Note;
use crate::run::folder::{CONFIG, METRICS, RunFolder, SAMPLES, SAMPLES_LOG, TENSORBOARD};
use crate::run::sample::{self, Sample};

/// The records of a run: open in the process that writes them, empty in the others of its group.
pub struct Records(Option<OpenLogs>);

struct OpenLogs {
    metrics: jsonl::Log,
    samples: jsonl::Log,
    events: Option<EventFile>,
    /// The step at which they were opened; an earlier session may have recorded samples of it.
    opened_at: u64,
    /// The samples of `opened_at` that the event file already has.
    shown: Vec<Sample>,
}

impl Records {
    /// The records in a process that does not write them.
    pub fn kept_elsewhere() -> Self {
        Self(None)
    }

    /// Opens the logs of a run at `step` for appending; writes the first row if there is none. With
    /// `tensorboard`, creates an event file, too. If the disk has no room for that, `note` says so:
    /// the run does not depend on it.
    ///
    /// # Errors
    /// When a file cannot be read or created; the line names it.
    pub fn open(
        run: &RunFolder,
        facts: RunFacts,
        step: u64,
        tensorboard: bool,
        note: &mut dyn FnMut(Note),
    ) -> Result<Self> {
        let samples = run.file(SAMPLES).join(SAMPLES_LOG);
        make_folder_of(&samples)?;
        let rows: Vec<Row> = jsonl::read(&run.file(METRICS))?;
        let (mut events, mut shown) = (None, Vec::new());
        if tensorboard {
            match new_events(run, &rows, step) {
                Ok((file, has)) => (events, shown) = (Some(file), has),
                Err(error) if error.is_full_disk() => note(Note::NoEvents(error)),
                Err(error) => return Err(error),
            }
        }
        let (mut metrics, samples) = (jsonl::Log::open(&run.file(METRICS))?, jsonl::Log::open(&samples)?);
        if rows.is_empty() {
            metrics.append(&Row { run: Some(facts), ..Row::default() })?;
            metrics.sync()?; // what is not synced is taken back when the disk is full
        }
        Ok(Self(Some(OpenLogs { metrics, samples, events, opened_at: step, shown })))
    }

    /// Writes a row of numbers.
    ///
    /// # Errors
    /// When it cannot be written; the line names the file.
    pub fn append(&mut self, row: &Row) -> Result<(), LogError> {
        let Some(open) = &mut self.0 else { return Ok(()) };
        let logged = open.metrics.append(row);
        let shown = open.events.as_mut().map_or(Ok(()), |events| events.row(row));
        logged.and(shown)
    }

    /// Waits until every row and every sample is on the disk.
    ///
    /// # Errors
    /// When they cannot be written; the line names the file.
    pub fn sync(&mut self) -> Result<(), LogError> {
        let Some(open) = &mut self.0 else { return Ok(()) };
        open.metrics.sync()?;
        open.samples.sync()?;
        if let Some(events) = &mut open.events {
            // The run does not depend on it. What a full disk did not take is pending, and the next
            // event reports a disk that is still full.
            let _ = events.sync();
        }
        Ok(())
    }

    /// Writes the samples of one step, replacing those of an earlier session: each as a row, and
    /// all together as text in `page`.
    ///
    /// # Errors
    /// When they cannot be written; the line names the file.
    pub fn keep(&mut self, samples: &[Sample], page: &Path) -> Result<()> {
        let Some(open) = &mut self.0 else { return Ok(()) };
        // Not create_dir_all: a run's folder that was moved or removed must not be created again.
        let _ = page.parent().map(fs::create_dir);
        write_text(page, &sample::page(samples))?;
        // In one write: if a kill left only some rows, the next session might not sample at this
        // step again, and they would stay incomplete.
        let opened_at = open.opened_at;
        if samples.iter().any(|sample| sample.step == opened_at) {
            open.samples.replace(|row| row.step < opened_at, samples)?;
        } else {
            open.samples.append_all(samples)?;
        }
        if let Some(file) = &mut open.events {
            let content = |sample: &Sample| (tag(sample), sample.whole());
            let is_shown = |sample: &Sample| open.shown.iter().any(|shown| content(shown) == content(sample));
            let mut events = Events::default();
            for sample in samples.iter().filter(|sample| sample.step != opened_at || !is_shown(sample)) {
                events.text(sample.step, &tag(sample), &sample.whole());
            }
            file.append(&events)?;
        }
        Ok(())
    }
}

/// A new event file of a run at `step`, which first gets the `rows` and the samples of earlier
/// sessions if those wrote no events; and the samples of `step` that it got.
fn new_events(run: &RunFolder, rows: &[Row], step: u64) -> Result<(EventFile, Vec<Sample>)> {
    let (folder, mut events) = (run.file(TENSORBOARD), Events::default());
    if has_events(&folder) {
        return Ok((EventFile::create(&folder, step + 1, &events)?, Vec::new()));
    }
    let config = fs::read_to_string(run.file(CONFIG)).at("cannot read", run.file(CONFIG))?;
    events.text(0, CONFIG, &config);
    rows.iter().try_for_each(|row| events.row(row))?;
    let mut samples: Vec<Sample> = jsonl::read(&run.file(SAMPLES).join(SAMPLES_LOG))?;
    samples.iter().for_each(|sample| events.text(sample.step, &tag(sample), &sample.whole()));
    samples.retain(|sample| sample.step == step);
    Ok((EventFile::create(&folder, 0, &events)?, samples))
}

/// Removes the records of steps that a run resumed at `step` will take again. Removes the
/// evaluation of `step` itself unless its checkpoint says that it is `evaluated`. Keeps the samples
/// of `step`: an extended run may not sample there again, and if it does, [`Records::keep`]
/// replaces them.
///
/// # Errors
/// When a log is damaged or cannot be replaced; the line names it.
pub fn cut_back(run: &RunFolder, step: u64, evaluated: bool) -> Result<(), LogError> {
    let stays = |row: &jsonl::Stepped| row.step < step || row.step == step && (evaluated || row.eval_s.is_none());
    jsonl::cut_back(&run.file(METRICS), stays)?;
    jsonl::cut_back(&run.file(SAMPLES).join(SAMPLES_LOG), |row| row.step <= step)?;
    let folder = run.file(SAMPLES);
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let sampled =
            name.to_str().and_then(|name| name.strip_prefix("step-")?.strip_suffix(".txt")?.parse::<u64>().ok());
        if sampled.is_some_and(|sampled| sampled > step) {
            fs::remove_file(entry.path()).at("cannot remove", entry.path())?;
        }
    }
    Ok(())
}

fn tag(sample: &Sample) -> String {
    format!("sample/prompt {}", sample.prompt_index)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ember_model::device::{DeviceChoice, select};

    use super::*;
    use crate::distributed::Alone;
    use crate::run::report::Silent;
    use crate::run::{resume, small_run};

    #[test]
    fn a_run_that_goes_on_beyond_its_end_keeps_the_samples_of_that_end_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        small_run::train(small_run::begin(&path, "max_steps = 4\nsample_interval = 3\nsample_tokens = 4\n"));
        let go_on = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
            let run = resume(&path, &changes, select(DeviceChoice::Cpu).unwrap(), None, &Alone, &mut Silent).unwrap();
            small_run::train(run);
        };
        let sampled = || {
            let samples: Vec<Sample> = jsonl::read(&path.join(SAMPLES).join(SAMPLES_LOG)).unwrap();
            let steps: Vec<u64> = samples.iter().map(|sample| sample.step).collect();
            let page = |step: &u64| path.join(SAMPLES).join(format!("step-{step:08}.txt"));
            assert!(steps.iter().all(|step| page(step).is_file()), "{steps:?}");
            steps
        };
        assert_eq!(sampled(), [3, 4]);
        go_on(&[]); // draws the last sample again
        assert_eq!(sampled(), [3, 4]);
        go_on(&["sample_interval=0"]);
        assert_eq!(sampled(), [3, 4]);
        go_on(&["sample_interval=3", "max_steps=8"]);
        assert_eq!(sampled(), [3, 4, 6, 8]);
        // A new event file contains all earlier samples, each once.
        go_on(&["tensorboard=true"]);
        let events = fs::read_dir(path.join(TENSORBOARD)).unwrap().next().unwrap().unwrap();
        let content = fs::read(events.path()).unwrap();
        let count = |tag: &[u8]| content.windows(tag.len()).filter(|window| *window == tag).count();
        assert_eq!((sampled().len(), count(b"sample/prompt 0")), (4, 4));
    }

    #[test]
    fn the_samples_of_every_prompt_are_replaced_where_a_step_is_sampled_again() {
        let place = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&place.path().join("run")).unwrap();
        let sample =
            |step, prompt_index, text: &str| Sample { step, prompt_index, text: text.into(), ..Sample::default() };
        let log = run.file(SAMPLES).join(SAMPLES_LOG);
        let kept = || jsonl::read::<Sample>(&log).unwrap();
        let open = || Records::open(&run, RunFacts::default(), 4, false, &mut |_| {}).unwrap();
        let page = run.sample(4);
        let first = [sample(3, 0, "a"), sample(4, 0, "b"), sample(4, 1, "c")];
        open().keep(&first[..1], &run.sample(3)).unwrap();
        open().keep(&first[1..], &page).unwrap();
        assert_eq!(kept(), first);
        let mut records = open();
        let again = [sample(4, 0, "d"), sample(4, 1, "e")];
        records.keep(&again, &page).unwrap();
        assert_eq!(kept(), [first[0].clone(), again[0].clone(), again[1].clone()]);
        records.keep(&[sample(6, 0, "f"), sample(6, 1, "g")], &run.sample(6)).unwrap();
        assert_eq!(kept().len(), 5);
    }

    /// They may be the last of the run: nothing else would write them.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_sync_writes_the_events_that_a_full_disk_did_not_take() {
        let place = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&place.path().join("run")).unwrap();
        fs::write(run.file(CONFIG), "").unwrap();
        let mut records = Records::open(&run, RunFacts::default(), 0, true, &mut |_| {}).unwrap();
        let put_events = |records: &mut Records, disk: fs::File| {
            let events = records.0.as_mut().unwrap().events.as_mut().unwrap();
            std::mem::replace(&mut events.out.file, disk)
        };
        let full = fs::File::options().append(true).open("/dev/full").unwrap();
        let disk = put_events(&mut records, full);
        let row = Row { step: 1, train_loss: Some(1.0), ..Row::default() };
        assert!(crate::error::Error::from(records.append(&row).unwrap_err()).is_full_disk());
        put_events(&mut records, disk);
        records.sync().unwrap();
        let file = fs::read_dir(run.file(TENSORBOARD)).unwrap().next().unwrap().unwrap();
        let content = fs::read(file.path()).unwrap();
        assert!(content.windows(15).any(|window| window == b"loss/train_loss"));
    }
}
