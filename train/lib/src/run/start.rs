//! Begins a new run. Settings that are wrong for every text are refused before the text is read: a
//! large one takes minutes to prepare.

use std::path::{Path, PathBuf};

use ember_data::prepare::{Dataset, Manifest, PrepareOptions, Silent};
use ember_model::GptConfig;
use ember_model::device::{self, DeviceChoice, Selected};

use super::Run;
use super::folder::{DATA, RunFolder};
use super::text::{self, absolute};
use super::time_budget::{Pace, TimeBudget};
use super::{init::Init, report::Reporter, sample};
use crate::config::{DataConfig, DeviceKind, Settings, TextFacts, TrainConfig, most_steps, precision};
use crate::distributed::{Launch, ProcessGroup, all_ok, broadcast, check_share, launch};
use crate::error::{ConfigError, Error, FolderError, Result, TextError};
use crate::memory::fit::{self, Fit, Undecided, fit_to_device, fit_to_memory, share_of};
use crate::{memory, memory::keeping::give_back_freed_memory, memory::prediction::Kernels, note::Note};

/// Steps in the beginning of a run that a program may replace.
pub trait StartHooks {
    /// Prepares the text; `None` when interrupted.
    ///
    /// # Errors
    /// When the text cannot be read or the tokens cannot be written.
    fn prepare(&self, options: &PrepareOptions) -> Result<Option<Manifest>> {
        text::prepare(options, &Silent)
    }

    /// The configurations that these settings can resolve to, depending on the text, smallest
    /// first.
    fn for_every_text(&self, settings: &Settings, device: DeviceKind) -> Vec<Result<TrainConfig, ConfigError>> {
        settings.for_texts_of_every_size(device)
    }

    /// Chooses what the settings leave open, for this text; `None` when interrupted.
    ///
    /// # Errors
    /// When the settings cannot be trained with.
    fn choose(
        &self,
        settings: Settings,
        prepared: &PreparedText,
        _reporter: &mut dyn Reporter,
    ) -> Result<Option<ResolvedRun>> {
        let (config, reasons) = settings.resolve(&prepared.facts, device_kind(prepared.selected))?;
        Ok(Some(ResolvedRun { config, reasons, pace: Pace::default() }))
    }

    /// The time budget of a run that must end at a promised time. `pace` is the expected time of
    /// steps and looks, `most_steps` the number of steps after which the text teaches no more.
    fn time_budget(&self, _most_steps: u64, _pace: Pace) -> Option<TimeBudget> {
        None
    }

    /// Whether a step of `config` fits into the memory of a device whose free memory is unknown;
    /// `None` when interrupted.
    ///
    /// # Errors
    /// When it cannot be tried.
    fn try_steps(&self, _config: &TrainConfig, _shape: &GptConfig, _selected: &Selected) -> Result<Option<Fit>> {
        Ok(Some(Fit::Fits("the first step will show".to_owned())))
    }
}

/// The library's default for every hook.
#[derive(Clone, Copy, Debug)]
pub struct DefaultHooks;

impl StartHooks for DefaultHooks {}

/// A tokenised text, and the resources to train on it.
pub struct PreparedText<'a> {
    /// The text.
    pub dataset: &'a Dataset,
    /// Its sizes, on which choices depend.
    pub facts: TextFacts,
    /// The device.
    pub selected: &'a Selected,
    /// Processes that share every step.
    pub processes: usize,
    /// Bytes that this process may use, if known.
    pub memory: Option<u64>,
    /// The model's shape for a configuration.
    pub shape: &'a dyn Fn(&TrainConfig) -> GptConfig,
}

/// A complete configuration, and the reasons for its choices.
pub struct ResolvedRun {
    /// The configuration.
    pub config: TrainConfig,
    /// A line for each choice.
    pub reasons: Vec<Note>,
    /// The expected time of a step, for [`StartHooks::time_budget`].
    pub pace: Pace,
}

/// A new run before its text is read.
pub struct Start {
    /// The keys that the user set.
    pub settings: Settings,
    /// The keys that define the data.
    pub data: DataConfig,
    /// The device.
    pub selected: Selected,
    init: Option<Init>,
    memory_limit: Option<u64>,
}

/// A new run's configuration and text, and the expected time of a step.
type Described = (TrainConfig, Dataset, Pace);

impl Start {
    /// Selects the device, and the precision if the settings leave it open.
    ///
    /// # Errors
    /// When the settings contradict each other or cannot be trained with here, whatever the text,
    /// or the device or the initial checkpoint is not available.
    pub fn new(
        mut settings: Settings,
        device: DeviceChoice,
        memory_limit: Option<u64>,
        hooks: &dyn StartHooks,
        reporter: &mut dyn Reporter,
    ) -> Result<Self> {
        // The configuration of a run calls its initial checkpoint its tokenizer, too.
        if settings.tokenizer == settings.init {
            settings.tokenizer = None;
        }
        let init = settings.init().map(Init::open).transpose()?;
        if let Some(init) = &init {
            reporter.note(init.found.as_str().into());
            settings.take_tokenizer(&init.folder)?;
        }
        let data = settings.data()?;
        let selected = device::select(launch::device(device))?;
        reporter.note(selected.line().into());
        if let Some(note) = precision::settle(&mut settings, &selected)? {
            reporter.note(note);
        }
        settings.check_parts()?;
        let start = Self { settings, data, selected, init, memory_limit };
        start.check(hooks)?;
        Ok(start)
    }

    /// Refuses settings that cannot be trained with, whatever the text: tries the configuration for
    /// every size of text. The error is that of the smallest.
    fn check(&self, hooks: &dyn StartHooks) -> Result<()> {
        let mut settings = self.settings.clone();
        if let Some(init) = &self.init {
            settings.take_shape(&init.named, &init.shape, &TextFacts::NOTHING)?;
        }
        let memory = memory::available(self.memory_limit, &self.selected);
        let processes = Launch::of_this_process().map_or(1, |launch| launch.size);
        let mut first: Option<Error> = None;
        for config in hooks.for_every_text(&settings, device_kind(&self.selected)) {
            match config.map_err(Error::from).and_then(|config| self.check_one(&config, memory, processes)) {
                Ok(()) => return Ok(()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn check_one(&self, config: &TrainConfig, memory: Option<u64>, processes: usize) -> Result<()> {
        let shape = self.shape(config, 1); // the smallest vocabulary
        check_size(config, &shape, &self.selected, processes)?;
        let open = Undecided::by(&self.settings);
        if let (Some(memory), true) = (memory, open.micro_batch) {
            let kernels = Kernels::on(&self.selected.device);
            fit_to_memory(&share_of(config, processes), &shape, kernels, open, memory)?;
        }
        Ok(())
    }

    /// The shape of the model of a run with `config`.
    fn shape(&self, config: &TrainConfig, vocab_size: usize) -> GptConfig {
        self.init.as_ref().map_or_else(|| config.shape(vocab_size), |init| init.shape_by(config))
    }

    /// Creates the run's folder `path`, prepares the text, and writes the resolved configuration.
    /// In a group, rank 0 does so, and the other processes open the result. `None` when
    /// interrupted; no process has left the group then. If no run begins, a folder created for it
    /// is removed.
    ///
    /// # Errors
    /// When the text is invalid, the folder holds a run already, or something cannot be written.
    pub fn begin(
        self,
        path: &Path,
        group: &dyn ProcessGroup,
        hooks: &dyn StartHooks,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<Run>> {
        self.begin_in(&|| RunFolder::create(path), group, hooks, reporter)
    }

    /// Like [`Self::begin`], in `path` or the first of `<path>-2`, `-3`, ... that does not exist.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_free(
        self,
        path: &Path,
        group: &dyn ProcessGroup,
        hooks: &dyn StartHooks,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<Run>> {
        self.begin_in(&|| RunFolder::create_free(path), group, hooks, reporter)
    }

    fn begin_in(
        self,
        create: &dyn Fn() -> Result<RunFolder, FolderError>,
        group: &dyn ProcessGroup,
        hooks: &dyn StartHooks,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<Run>> {
        let mut make = || -> Result<_> {
            let folder = create()?;
            let begun = self.describe(&folder, group.size(), hooks, reporter);
            if !matches!(begun, Ok(Some(_))) {
                folder.forget();
            }
            Ok(begun?.map(|described| (folder, described)))
        };
        let made = all_ok(group, if group.leads() { make() } else { Ok(None) })?;
        // An OsString: serde writes no path that is not UTF-8.
        let path = made.as_ref().map(|(folder, _)| folder.path().as_os_str().to_owned());
        let Some(path) = broadcast(group, &path)? else { return Ok(None) };
        let opened = made.map_or_else(|| open_shared(Path::new(&path)), Ok);
        let (folder, (config, dataset, pace)) = all_ok(group, opened)?;
        let shape = self.shape(&config, dataset.manifest.vocab_size);
        if !group.leads() {
            // The leader has done so when it described the run.
            let memory = memory::available(self.memory_limit, &self.selected);
            fit::keeps_freed_memory(&share_of(&config, group.size()), &shape, &self.selected, memory);
        }
        let parameters = shape.parameters() as u64;
        let most_steps = most_steps(parameters, dataset.manifest.train.tokens, config.tokens_per_step());
        let run = Run::new(folder, config, dataset, self.selected, group)?;
        Ok(Some(Run { time_budget: hooks.time_budget(most_steps, pace), ..run }))
    }

    /// Prepares the text and writes the resolved configuration: from then on the run exists. `None`
    /// when interrupted.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn describe(
        &self,
        folder: &RunFolder,
        processes: usize,
        hooks: &dyn StartHooks,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<Described>> {
        let elsewhere = self.prepared(reporter)?;
        if let Some(prepared) = elsewhere {
            refuse_other_data(folder, prepared)?;
        }
        let tokens = match elsewhere {
            Some(prepared) => Some(prepared.to_owned()),
            None => self.prepare(folder, hooks, reporter)?,
        };
        let Some(tokens) = tokens else { return Ok(None) };
        let dataset = Dataset::open(&tokens)?;
        let configured = self.configure(&dataset, &tokens, processes, hooks, reporter)?;
        let Some((mut config, pace)) = configured else { return Ok(None) };
        sample::check_prompts(&dataset.tokenizer, &config.sample_prompts)?;
        // The run may be resumed from another working directory.
        if elsewhere.is_some() {
            config.text = vec![absolute(&tokens)?];
        }
        if let Some(init) = &self.init {
            let named = absolute(&init.named)?;
            if config.tokenizer == config.init {
                config.tokenizer.clone_from(&named);
            }
            config.init = named;
        }
        folder.write_config(&config)?;
        Ok(Some((config, dataset, pace)))
    }

    /// The folder of an already prepared text, if the settings name one; tells the user which keys
    /// then have no effect.
    ///
    /// # Errors
    /// When `mask` is set, which would have no effect.
    pub fn prepared(&self, reporter: &mut dyn Reporter) -> Result<Option<&Path>> {
        let Some(prepared) = text::prepared(&self.data.text) else { return Ok(None) };
        if self.data.mask {
            return Err(TextError::MaskedTooLate(prepared.to_owned()).into());
        }
        text::ignored_keys(&self.settings, prepared).into_iter().for_each(|line| reporter.note(line.into()));
        Ok(Some(prepared))
    }

    /// Prepares the text into the run's folder, and returns the folder of its tokens; `None` when
    /// interrupted.
    fn prepare(
        &self,
        folder: &RunFolder,
        hooks: &dyn StartHooks,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<PathBuf>> {
        let tokens = folder.file(DATA);
        let explain = |error| match &self.init {
            Some(init) => init.explain(error),
            None => error,
        };
        let prepared = hooks.prepare(&text::options(&self.data, tokens.clone())?).map_err(explain)?;
        let Some(manifest) = prepared else { return Ok(None) };
        reporter.note(manifest.report.to_string().into());
        Ok(Some(tokens))
    }

    /// Chooses what the settings leave open for this text, whose tokens are in `tokens`, and
    /// refuses a configuration that could not train before any work is lost. `None` when
    /// interrupted.
    fn configure(
        &self,
        dataset: &Dataset,
        tokens: &Path,
        processes: usize,
        hooks: &dyn StartHooks,
        reporter: &mut dyn Reporter,
    ) -> Result<Option<(TrainConfig, Pace)>> {
        let Self { init, selected, memory_limit, .. } = self;
        let manifest = &dataset.manifest;
        let (train_tokens, val_tokens, vocab_size) = (manifest.train.tokens, manifest.val.tokens, manifest.vocab_size);
        let facts = TextFacts { train_tokens, val_tokens, vocab_size };
        let mut settings = self.settings.clone();
        if let Some(init) = init {
            init.check_tokens(dataset, tokens)?;
            let decided = settings.take_shape(&init.named, &init.shape, &facts)?;
            decided.into_iter().for_each(|line| reporter.note(line.into()));
        }
        let open = Undecided::by(&settings);
        // Memory that the allocator still holds from preparing is available for training.
        give_back_freed_memory();
        let memory = memory::available(*memory_limit, selected);
        let shape = |config: &TrainConfig| self.shape(config, vocab_size);
        let prepared = PreparedText { dataset, facts, selected, processes, memory, shape: &shape };
        let Some(resolved) = hooks.choose(settings, &prepared, reporter)? else { return Ok(None) };
        let ResolvedRun { config, reasons, pace } = resolved;
        reasons.into_iter().for_each(|reason| reporter.note(reason));
        check_size(&config, &shape(&config), selected, processes)?;
        text::windows(&config, dataset)?;
        Ok(fitted(config, open, &prepared, hooks, reporter)?.map(|config| (config, pace)))
    }
}

/// Chooses a micro-batch that fits into memory, if the user set none; otherwise warns if the user's
/// seems too large. `None` when interrupted.
fn fitted(
    mut config: TrainConfig,
    open: Undecided,
    prepared: &PreparedText,
    hooks: &dyn StartHooks,
    reporter: &mut dyn Reporter,
) -> Result<Option<TrainConfig>> {
    let PreparedText { selected, processes, memory, .. } = *prepared;
    let shape = (prepared.shape)(&config);
    let share = share_of(&config, processes);
    if open.micro_batch {
        let trial = |config: &_| hooks.try_steps(config, &shape, selected);
        let fitted = fit_to_device(&share, &shape, open, selected, memory, &trial)?;
        let Some(fitted) = fitted else { return Ok(None) };
        config = fitted.in_whole(&config);
        reporter.note(fitted.reason.into());
    } else if let Some(warning) = fit::warning(&share, &shape, selected, memory) {
        reporter.note(warning.into());
    }
    if !fit::keeps_freed_memory(&share_of(&config, processes), &shape, selected, memory) {
        reporter.note(fit::RETURNS_FREED_MEMORY.into());
    }
    Ok(Some(config))
}

/// Refuses a folder that holds data prepared for another run (one that did not begin):
/// [`text::data_folder`] would take them for those of this one, whose text is in `prepared`.
fn refuse_other_data(folder: &RunFolder, prepared: &Path) -> Result<(), FolderError> {
    let own = folder.file(DATA);
    let is_other = Dataset::is_in(&own) && own.canonicalize().ok() != prepared.canonicalize().ok();
    if is_other { Err(FolderError::OtherData { path: folder.path().to_owned(), data: own }) } else { Ok(()) }
}

/// Opens the folder that another process of the group has created.
fn open_shared(path: &Path) -> Result<(RunFolder, Described)> {
    let folder = RunFolder::owned_elsewhere(path);
    let (config, dataset) = text::config_and_dataset(&folder)?;
    Ok((folder, (config, dataset, Pace::default())))
}

/// Checks the model's shape, the device's limits, and that the processes can share each step.
///
/// # Errors
/// Names what does not fit, in one line.
pub fn check_size(config: &TrainConfig, shape: &GptConfig, selected: &Selected, processes: usize) -> Result<()> {
    shape.validate()?;
    fit::check_limits(config.precision, shape, selected)?;
    Ok(check_share(config.windows_per_step(), processes)?)
}

/// The kind of a device.
pub fn device_kind(selected: &Selected) -> DeviceKind {
    if selected.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu }
}
