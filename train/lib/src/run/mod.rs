//! A run from its text to its last checkpoint: [`Start`] begins a new one, [`resume`] continues
//! one, [`Run::train`] trains it.
//!
//! ```no_run
//! use ember_model::device::DeviceChoice;
//! use ember_training::config::Settings;
//! use ember_training::distributed::Alone;
//! use ember_training::run::report::Silent;
//! use ember_training::run::{DefaultHooks, Start};
//!
//! # fn main() -> ember_training::error::Result<()> {
//! let mut settings = Settings::from_toml_str("max_steps = 200")?;
//! settings.set_text(&["my-writing".to_owned()]);
//! let start = Start::new(settings, DeviceChoice::default(), None, &DefaultHooks, &mut Silent)?;
//! let begun = start.begin("runs/mine".as_ref(), &Alone, &DefaultHooks, &mut Silent)?;
//! let Some(run) = begun else { return Ok(()) };
//! let trained = run.train(&Alone, &mut Silent, &|| false)?;
//! println!("{:?}", trained.progress.evaluations.best);
//! # Ok(())
//! # }
//! ```

mod between_steps;
pub mod card;
mod checkpoint;
mod disk;
pub mod evaluate;
pub mod folder;
pub mod init;
mod left_out;
pub mod report;
mod resume;
pub mod runs;
pub mod sample;
pub mod schedule;
#[cfg(test)]
mod small_run;
mod speedometer;
mod start;
pub mod temperature;
pub mod text;
pub mod time_budget;
mod training;
pub mod verify;

use ember_data::prepare::{Dataset, Marks};
use ember_kernels::gpu::products;
use ember_model::{Gpt, device::Selected};

use self::{card::Card, folder::RunFolder, init::initial_model, left_out::warn_if_damaged, time_budget::TimeBudget};
use crate::config::{TrainConfig, precision::float_dtype, precision::simd};
use crate::distributed::{ProcessGroup, all_ok, broadcast, exchange};
use crate::error::{GroupError, Result};
use crate::step::progress::{DataChecksums, Progress};
use crate::step::{InFlight, Learner};
use crate::{step::optimizer::Optimizer, units::counted};
use report::{Records, Reporter, RunFacts};
use training::{Session, Trainer};

pub use resume::resume;
pub use start::{DefaultHooks, PreparedText, ResolvedRun, Start, StartHooks, check_size, device_kind};
pub use training::Ended;

/// A run, new or resumed, ready to train.
pub struct Run {
    /// Its folder.
    pub folder: RunFolder,
    /// Its configuration.
    pub config: TrainConfig,
    /// Its text.
    pub dataset: Dataset,
    /// Its model, on the training device.
    pub gpt: Gpt,
    /// Its optimizer.
    pub optimizer: Optimizer,
    /// Where it stands.
    pub progress: Progress,
    /// The device.
    pub selected: Selected,
    /// The step at which to stop as if interrupted.
    pub pause_at: Option<u64>,
    /// For a run that must end at a promised time.
    pub time_budget: Option<TimeBudget>,
}

/// A run after training.
pub struct Trained {
    /// How it ended.
    pub ended: Ended,
    /// Its folder.
    pub folder: RunFolder,
    /// Where it stands.
    pub progress: Progress,
    /// Reference losses of the built-in corpus.
    pub marks: Option<Marks>,
}

impl Run {
    /// A run whose configuration and text are in its folder, at its first step.
    ///
    /// # Errors
    /// When the folder is no run, another process uses it, or its text or its initial checkpoint
    /// cannot be read.
    pub fn from_the_start(folder: RunFolder, selected: Selected, group: &dyn ProcessGroup) -> Result<Self> {
        let (config, dataset) = text::config_and_dataset(&folder)?;
        Self::new(folder, config, dataset, selected, group)
    }

    /// A run at its first step.
    fn new(
        folder: RunFolder,
        config: TrainConfig,
        dataset: Dataset,
        selected: Selected,
        group: &dyn ProcessGroup,
    ) -> Result<Self> {
        let gpt = all_ok(group, initial_model(&config, &dataset, &selected.device.clone().autodiff()))
            .inspect_err(|_| folder.forget())?;
        let (optimizer, progress) = (Optimizer::new(&config), Progress::default());
        let (pause_at, time_budget) = (None, None);
        Ok(Self { folder, config, dataset, gpt, optimizer, progress, selected, pause_at, time_budget })
    }

    /// Trains to the end, or until `stop` or the reporter requests a stop, together with the other
    /// processes of `group`, with which the run was begun or resumed.
    ///
    /// # Errors
    /// When a file cannot be written, the device fails or the group is gone. Every checkpoint saved
    /// before is still there; the folder of a new run is removed if not even its first row could be
    /// written. This process has left the group then.
    pub fn train(
        self,
        group: &dyn ProcessGroup,
        reporter: &mut dyn Reporter,
        stop: &dyn Fn() -> bool,
    ) -> Result<Trained> {
        let Self { folder, config, dataset, gpt, optimizer, mut progress, selected, pause_at, time_budget } = self;
        progress.data = Some(all_ok(group, broadcast_data(group, DataChecksums::new(&dataset.manifest))?)?);
        let gpt = exchange::broadcast_weights(group, gpt)?.with_precision(float_dtype(config.precision));
        let (windows, val_windows) = text::windows(&config, &dataset)?;
        note_sizes(&config, &gpt, windows.windows_per_pass(), reporter);
        record_windows_per_pass(&mut progress, windows.windows_per_pass(), reporter);
        let ngram_loss = dataset.manifest.best_ngram_loss();
        reporter.note(format!("an n-gram model reaches a validation loss of {ngram_loss:.4}").into());
        let peak_flops = speedometer::peak_flops(&selected.name, config.precision);
        let facts = run_facts(&config, &dataset, &gpt, &selected, peak_flops);
        let log = records(group, &folder, facts, &config, &progress, reporter);
        // A new run whose first row cannot be written, as on a full disk, is removed.
        let log = all_ok(group, log).inspect_err(|_| folder.forget())?;
        group.keep_watch(folder.path());
        reporter.begin(&folder.name(), progress.step, config.max_steps);
        let began_damaged = warn_if_damaged(&gpt, reporter);
        let in_flight = InFlight::new(&config, group, &gpt.device());
        if progress.tuned {
            products::tune(&gpt.device()); // so that this session computes with the same kernels
        }
        let session = Session::new(&progress, peak_flops, began_damaged, selected.gpu && !progress.tuned);
        let idle_keys = text::idle_keys(folder.path(), &config.text);
        let card = Card::new(folder.name(), &config, idle_keys, &dataset, gpt.config())?;
        let learner = Learner { config, group, windows, optimizer, progress, in_flight, stop_agreed: false };
        let mut trainer = Trainer {
            learner,
            folder,
            dataset,
            val_windows,
            card,
            log,
            reporter,
            stop,
            pause_at,
            time_budget,
            session,
        };
        let result = trainer.train(gpt);
        trainer.reporter.finish();
        let Trainer { folder, dataset, learner: Learner { progress, .. }, .. } = trainer;
        Ok(Trained { ended: result?, folder, progress, marks: dataset.manifest.marks })
    }
}

/// Tells the user the sizes of the model, of a step and of a pass over the text.
fn note_sizes(config: &TrainConfig, gpt: &Gpt, windows_per_pass: u64, reporter: &mut dyn Reporter) {
    let line = format!(
        "{} parameters, {} tokens per step, {} per pass over the text",
        gpt.config().parameters(),
        config.tokens_per_step(),
        counted(windows_per_pass, "window")
    );
    reporter.note(line.into());
}

/// Stores the number of windows in a pass, and tells the user if it has changed.
fn record_windows_per_pass(progress: &mut Progress, now: u64, reporter: &mut dyn Reporter) {
    let before = progress.windows_per_pass.replace(now);
    let Some(before) = before.filter(|before| *before != now) else { return };
    let line = format!(
        "another version of the program split the text into {} per pass over it, this one into {}: results will \
         differ from an uninterrupted run's",
        counted(before, "window"),
        counted(now, "window")
    );
    reporter.note(line.into());
}

/// The records of the run; only rank 0 writes them.
fn records(
    group: &dyn ProcessGroup,
    folder: &RunFolder,
    facts: RunFacts,
    config: &TrainConfig,
    progress: &Progress,
    reporter: &mut dyn Reporter,
) -> Result<Records> {
    if !group.leads() {
        return Ok(Records::kept_elsewhere());
    }
    Records::open(folder, facts, progress.step, config.tensorboard, &mut |note| reporter.note(note))
}

/// The checksums of the text, if this process reads the same text as rank 0.
fn broadcast_data(group: &dyn ProcessGroup, own: DataChecksums) -> Result<Result<DataChecksums>> {
    let other = broadcast(group, &own)?.difference(&own);
    Ok(other.map_or(Ok(own), |what| Err(GroupError::OtherText(what).into())))
}

/// The first row of the log.
fn run_facts(
    config: &TrainConfig,
    dataset: &Dataset,
    gpt: &Gpt,
    selected: &Selected,
    peak_flops: Option<f64>,
) -> RunFacts {
    RunFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        device: selected.name.clone(),
        simd: simd(&selected.device).map(str::to_owned),
        parameters: gpt.config().parameters() as u64,
        vocab_size: gpt.config().vocab_size as u64,
        tokens_per_step: config.tokens_per_step(),
        max_steps: config.max_steps,
        train_tokens: dataset.manifest.train.tokens,
        val_tokens: dataset.manifest.val.tokens,
        peak_flops,
    }
}
