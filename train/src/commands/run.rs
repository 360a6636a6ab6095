//! `ember-train run`: a new run, from text to checkpoint.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ember_cli::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_cli::terminal;
use ember_data::prepare::Dataset;
use ember_host::interrupt::Interrupt;
use ember_model::GptConfig;
use ember_model::device::{self, Selected};

use super::early::{Asked, check_size};
use super::fitting::{doubt, fit_to_device, keeps_freed_memory};
use super::init::{Init, first_model};
use super::prepare::{self, prepare_shown};
use super::session::{self, Session};
use crate::cli::RunArgs;
use ember_study::plan::text::Statistics;
use ember_study::plan::{MEASURING, Wish, propose};
use ember_training::checkpoint::Progress;
use ember_training::clock::{Clock, Pace};
use ember_training::config::{self, DataConfig, DeviceKind, Settings, TextFacts, TrainConfig};
use ember_training::memory;
use ember_training::memory::fit::{Open, share_of};
use ember_training::memory::keeping::give_back_freed_memory;
use ember_training::optimizer::Optimizer;
use ember_training::precision;
use ember_training::report::units::duration;
use ember_training::run_folder::{RunFolder, new_path};
use ember_training::sample;
use ember_training::team::launch::Launch;
use ember_training::team::messages::{agree, said_by_the_first};
use ember_training::team::{self, Team, launch};
use ember_training::windows::windows;

/// The share of the promised time in which the device may be measured.
const MEASURING_SHARE: f64 = 0.1;

/// Runs the command.
///
/// # Errors
/// When an argument or the text is wrong, the folder holds a run already, or something cannot be written.
pub fn run(args: &RunArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if args.help_config {
        writeln!(terminal::stdout(), "{}", config::help()).context("cannot write to standard output")?;
        return Ok(Outcome::Done);
    }
    let began = Instant::now();
    let team = team::join(interrupt)?;
    let common = &team::voice(&*team, common);
    let start = agree(&*team, Start::new(args, began, common))?;
    // Only the process that leads makes the folder; the others then open what is in it.
    let made = if team.leads() { make(args, &start, &*team, common, interrupt) } else { Ok(None) };
    let made = agree(&*team, made)?;
    let path = made.as_ref().map(|((run, ..), _)| run.path().display().to_string());
    let path = said_by_the_first(&*team, path.as_deref().unwrap_or_default())?;
    if path.is_empty() {
        team.leave();
        return Ok(Outcome::Interrupted);
    }
    let opened = made.map_or_else(|| follow(Path::new(&path)), Ok);
    let ((run, config, dataset), pace) = agree(&*team, opened)?;

    let selected = start.selected;
    let training_device = selected.device.clone().autodiff();
    let gpt = agree(&*team, first_model(&config, &dataset, &training_device))?;
    let optimizer = Optimizer::new(config.optimizer());
    let progress = Progress::default();
    let clock = start.promise.map(|promise| Clock::new(promise.began, promise.seconds, pace));
    let session = Session { team, run, config, dataset, gpt, optimizer, progress, selected, pause_at: None, clock };
    session.train(common, interrupt)
}

/// What is known before there is a folder.
pub(super) struct Start {
    pub(super) settings: Settings,
    pub(super) data: DataConfig,
    init: Option<Init>,
    pub(super) selected: Selected,
    memory_limit: Option<u64>,
    promise: Option<Promise>,
}

/// A promise that the command ends at a time.
#[derive(Clone, Copy)]
struct Promise {
    began: Instant,
    seconds: f64,
}

impl Start {
    /// Reads the configuration and chooses the device.
    ///
    /// # Errors
    /// As [`Self::with`], or when an argument is wrong.
    pub(super) fn new(args: &RunArgs, began: Instant, common: &CommonArgs) -> Result<Self> {
        let promise = args.minutes.map(|minutes| Promise { began, seconds: 60.0 * minutes });
        let start = Self::with(settings(args, common)?, args.memory_limit, promise.is_some(), common)?;
        Ok(Self { promise, ..start })
    }

    /// Chooses the device for what these settings say, and the precision where they do not say it. Sizes that nobody set are to be
    /// `planned`, or to follow from the text.
    ///
    /// # Errors
    /// When the settings contradict each other or cannot be trained with here, whatever the text, or the device or the checkpoint to
    /// begin from cannot be had.
    pub(super) fn with(
        mut settings: Settings,
        memory_limit: Option<u64>,
        planned: bool,
        common: &CommonArgs,
    ) -> Result<Self> {
        let notes = Notes::new(common.quiet);
        let init = settings.init().map(Init::open).transpose()?;
        if let Some(init) = &init {
            init.give_tokenizer(&mut settings, &notes)?;
        }
        let data = settings.data()?;
        let selected = device::select(launch::device(common.device))?;
        session::say_device(&notes, &selected);
        if let Some(reason) = precision::settle(&mut settings, &selected)? {
            notes.say(reason);
        }
        settings.check_parts()?;
        let asked = Asked {
            settings: &settings,
            init: init.as_ref(),
            selected: &selected,
            memory: memory::available(memory_limit, &selected),
            processes: Launch::of_this_process().map_or(1, |launch| launch.size),
            planned,
        };
        asked.check()?;
        Ok(Self { settings, data, init, selected, memory_limit, promise: None })
    }
}

/// A run as its folder describes it.
type Described = (RunFolder, TrainConfig, Dataset);

/// Makes the folder of a new run, and foresees its pace where its time is promised; `None` when interrupted.
fn make(
    args: &RunArgs,
    start: &Start,
    team: &dyn Team,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Option<(Described, Pace)>> {
    let path = args.out.clone().unwrap_or_else(|| new_path(&run_name(&start.data.text)));
    let fresh = !path.exists();
    let run = RunFolder::create(&path)?;
    let begun = begin(&run, start, team, common, interrupt).inspect_err(|_| {
        if fresh {
            // Nothing was learned: leave nothing behind.
            let _ = std::fs::remove_dir_all(&path);
        }
    })?;
    Ok(begun.map(|(config, dataset, pace)| ((run, config, dataset), pace)))
}

/// Opens the folder that another process of the team has made.
fn follow(path: &Path) -> Result<(Described, Pace)> {
    let run = RunFolder::owned_elsewhere(path);
    let config = TrainConfig::from_file(&run.config())?;
    let dataset = Dataset::open(&session::data_folder(run.path(), &config.text))?;
    Ok(((run, config, dataset), Pace::default()))
}

/// Prepares the text and writes the resolved configuration: after this the run exists. `None` when interrupted.
pub(super) fn begin(
    run: &RunFolder,
    start: &Start,
    team: &dyn Team,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Option<(TrainConfig, Dataset, Pace)>> {
    let Start { settings, data, init, selected, memory_limit: limit, promise } = start;
    let notes = Notes::new(common.quiet);
    let mut settings = settings.clone();
    let elsewhere = session::prepared(&data.text);
    let folder = elsewhere.map_or_else(|| run.data(), Path::to_owned);
    if elsewhere.is_none() {
        let options = prepare::options(data, folder.clone())?;
        let prepared = prepare_shown(&options, common.quiet, interrupt);
        let prepared = match init {
            Some(init) => prepared.map_err(|error| init.explain(error))?,
            None => prepared?,
        };
        let Some(manifest) = prepared else { return Ok(None) };
        notes.say(&manifest.report);
    }
    let dataset = Dataset::open(&folder)?;
    let facts = TextFacts {
        train_tokens: dataset.manifest.train.tokens,
        val_tokens: dataset.manifest.val.tokens,
        vocab_size: dataset.manifest.vocab_size,
    };
    if let Some(init) = init {
        init.check_tokens(&dataset, &folder)?;
        init.give_shape(&mut settings, &facts, &notes)?;
    }
    let shape_of = |config: &TrainConfig| match init {
        Some(init) => init.shape(config),
        None => config.shape(facts.vocab_size),
    };
    let open = Open::of(&settings);
    // What preparing took is not training's.
    give_back_freed_memory();
    let memory = memory::available(*limit, selected);
    let (mut config, reasons, pace) = match promise {
        Some(promise) => {
            let foreseen = Foreseen { processes: team.size(), memory, shape: &shape_of };
            planned(settings, &dataset, selected, *promise, &foreseen, &notes)?
        }
        None => {
            let device = if selected.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
            let (config, reasons) = settings.resolve(&facts, device)?;
            (config, reasons, Pace::default())
        }
    };
    for reason in reasons {
        notes.say(reason);
    }
    // Refuse now what could not train, while there is nothing to lose.
    let shape = shape_of(&config);
    check_size(&config, &shape, selected, team.size())?;
    windows(&config, &dataset)?;
    let share = share_of(&config, team.size());
    if open.micro_batch {
        let fitted = fit_to_device(&share, &shape, open, selected, memory)?;
        config = fitted.in_whole(&config);
        notes.say(fitted.reason);
    } else if let Some(doubt) = doubt(&share, &shape, selected, memory) {
        notes.say(doubt);
    }
    if !keeps_freed_memory(&share_of(&config, team.size()), &shape, selected, memory) {
        notes.say("memory is short: what a step frees is given back at once, which makes steps slower");
    }
    sample::check_prompts(&dataset.tokenizer, &config.sample_prompts)?;
    // The run may be resumed from another folder.
    if elsewhere.is_some() {
        config.text = vec![absolute(&folder)?];
    }
    if !config.init.is_empty() {
        config.init = absolute(Path::new(&config.init))?;
    }
    run.write_config(&config)?;
    Ok(Some((config, dataset, pace)))
}

/// A path that means the same wherever the program is started.
fn absolute(path: &Path) -> Result<String> {
    let whole = std::path::absolute(path).with_context(|| format!("cannot find {}", path.display()))?;
    whole.into_os_string().into_string().map_err(|_| anyhow!("the name of {} is not UTF-8; rename it", path.display()))
}

/// What a plan must know beside settings, text and time.
struct Foreseen<'a> {
    /// How many share each step.
    processes: usize,
    /// Bytes that this one may take.
    memory: Option<u64>,
    /// The model that a configuration makes.
    shape: &'a dyn Fn(&TrainConfig) -> GptConfig,
}

/// What the settings leave open, planned for the time that is left.
fn planned(
    settings: Settings,
    dataset: &Dataset,
    selected: &Selected,
    promise: Promise,
    foreseen: &Foreseen,
    notes: &Notes,
) -> Result<(TrainConfig, Vec<String>, Pace)> {
    let text = Statistics::of(dataset, 1.0)?;
    let measuring = MEASURING.min(Duration::from_secs_f64(MEASURING_SHARE * promise.seconds));
    let spent = (promise.began.elapsed() + measuring).as_secs_f64();
    let seconds = Clock::aim(promise.seconds) - spent;
    if seconds < 0.2 * promise.seconds {
        bail!(
            "preparing the text took {}, which leaves too little of {}; prepare it once with `ember-train prepare` and train on \
             that folder, or give more --minutes",
            duration(spent),
            duration(promise.seconds)
        );
    }
    let fine_tuning = settings.init().is_some();
    let Foreseen { processes, memory, shape } = *foreseen;
    let wish = Wish { settings, seconds, memory_bytes: memory, measuring, processes, shape };
    let plan = propose(&wish, dataset, text, selected)?;
    if !fine_tuning {
        // The loss is foreseen for models that begin from random numbers.
        notes.say(format!(
            "planned for {}: validation loss about {:.2} (between {:.2} and {:.2})",
            duration(promise.seconds),
            plan.loss.loss,
            plan.loss.low,
            plan.loss.high
        ));
    }
    let pace = plan.pace();
    Ok((plan.config, [plan.reasons, plan.warnings].concat(), pace))
}

/// What the file, `--set`, `--seed` and the command line's TEXT say together, the later winning.
fn settings(args: &RunArgs, common: &CommonArgs) -> Result<Settings> {
    let mut settings = match &args.config {
        Some(path) => recipe(path)?,
        None if args.text.is_empty() && args.init.is_none() => Settings::from_toml_str(config::DEFAULT)?,
        None => Settings::default(),
    };
    for assignment in &args.set {
        settings.set(assignment)?;
    }
    if let Some(folder) = &args.init {
        if folder.is_empty() {
            return Err(UsageError::new("--init is empty; name a run, a checkpoint or a Hugging Face folder").into());
        }
        settings.set(&format!("init={folder}"))?;
    }
    if args.tensorboard {
        settings.set("tensorboard=true")?;
    }
    if let Some(seed) = common.seed {
        settings.set(&format!("seed={seed}"))?;
    }
    if !args.text.is_empty() {
        settings.set_text(&args.text);
    }
    if args.minutes.is_some() {
        if args.config.is_none() && args.text.is_empty() && !args.set.iter().any(|set| set.starts_with("max_steps")) {
            settings.leave_open("max_steps");
        }
        for key in ["max_steps", "lr_decay_steps"] {
            if settings.has(key) {
                let line = format!(
                    "--minutes chooses the length of the run, and {key} is set; leave one of them out (--set {key}=auto takes \
                     back what the configuration file says)"
                );
                return Err(UsageError::new(line).into());
            }
        }
    }
    Ok(settings)
}

/// A configuration file, or a shipped recipe by its name.
pub fn recipe(path: &Path) -> Result<Settings> {
    match config::shipped(path) {
        Some(text) if !path.exists() => Ok(Settings::from_toml_str(text)?),
        _ => Settings::from_file(path),
    }
}

/// A name for a run on these texts: the first one's, without its endings.
fn run_name(text: &[String]) -> String {
    let Some(first) = text.first() else { return "stories".to_owned() };
    if first == "-" {
        return "stdin".to_owned();
    }
    let name = Path::new(first).canonicalize().unwrap_or_else(|_| first.into());
    let name = name.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let stem = name.trim_start_matches('.').split('.').next().unwrap_or_default();
    if stem.is_empty() { "run".to_owned() } else { stem.to_owned() }
}
