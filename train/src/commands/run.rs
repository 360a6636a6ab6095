//! `ember-train run`: a new run, from text to checkpoint.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use ember_data::files::write_atomic;
use ember_data::prepare::{Dataset, PrepareOptions};
use ember_generate::interrupt::Interrupt;
use ember_generate::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_model::GptConfig;
use ember_model::device::{self, Selected};

use super::fitting::{doubt, fit_to_device};
use super::init::{Init, first_model};
use super::prepare::{inputs, prepare_shown};
use super::session::{self, Session};
use crate::checkpoint::Progress;
use crate::cli::RunArgs;
use crate::config::{self, DataConfig, DeviceKind, Settings, TextFacts, TrainConfig};
use crate::memory::fit::Checkpointing;
use crate::precision;
use crate::run_folder::{RunFolder, new_path};
use crate::sample;
use crate::team::messages::{agree, said_by_the_first};
use crate::team::{self, Team, launch};

/// Runs the command.
///
/// # Errors
/// When an argument or the text is wrong, the folder holds a run already, or something cannot be written.
pub fn run(args: &RunArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if args.help_config {
        writeln!(std::io::stdout(), "{}", config::help()).context("cannot write to standard output")?;
        return Ok(Outcome::Done);
    }
    let team = team::join(interrupt)?;
    let common = &team::voice(&*team, common);
    let start = agree(&*team, Start::new(args, common))?;
    // Only the process that leads makes the folder; the others then open what is in it.
    let made = if team.leads() { make(args, &start, &*team, common, interrupt) } else { Ok(None) };
    let made = agree(&*team, made)?;
    let path = made.as_ref().map(|(run, ..)| run.path().display().to_string());
    let path = said_by_the_first(&*team, path.as_deref().unwrap_or_default())?;
    if path.is_empty() {
        team.leave();
        return Ok(Outcome::Interrupted);
    }
    let opened = made.map_or_else(|| follow(Path::new(&path)), Ok);
    let (run, config, dataset) = agree(&*team, opened)?;

    let selected = start.selected;
    let training_device = selected.device.clone().autodiff();
    let gpt = agree(&*team, first_model(&config, &dataset, &training_device))?;
    let optimizer = session::optimizer(&config);
    let progress = Progress::default();
    let session = Session { team, run, config, dataset, gpt, optimizer, progress, selected, pause_at: None };
    session.train(common, interrupt)
}

/// What is known before there is a folder.
pub(super) struct Start {
    settings: Settings,
    data: DataConfig,
    init: Option<Init>,
    selected: Selected,
    memory_limit: Option<u64>,
}

impl Start {
    /// Reads the configuration and chooses the device.
    ///
    /// # Errors
    /// When an argument is wrong, or the device or the checkpoint to begin from cannot be had.
    pub(super) fn new(args: &RunArgs, common: &CommonArgs) -> Result<Self> {
        let notes = Notes::new(common.quiet);
        let mut settings = settings(args, common)?;
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
        Ok(Self { settings, data, init, selected, memory_limit: args.memory_limit })
    }
}

/// A run as its folder describes it.
type Described = (RunFolder, TrainConfig, Dataset);

/// Makes the folder of a new run; `None` when interrupted.
fn make(
    args: &RunArgs,
    start: &Start,
    team: &dyn Team,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Option<Described>> {
    let path = args.out.clone().unwrap_or_else(|| new_path(&run_name(&start.data.text)));
    let fresh = !path.exists();
    let run = RunFolder::create(&path)?;
    let begun = begin(&run, start, team, common, interrupt).inspect_err(|_| {
        if fresh {
            // Nothing was learned: leave nothing behind.
            let _ = std::fs::remove_dir_all(&path);
        }
    })?;
    Ok(begun.map(|(config, dataset)| (run, config, dataset)))
}

/// Opens the folder that another process of the team has made.
fn follow(path: &Path) -> Result<Described> {
    let run = RunFolder::owned_elsewhere(path);
    let config = TrainConfig::from_file(&run.config())?;
    let dataset = Dataset::open(&session::data_folder(run.path(), &config.text))?;
    Ok((run, config, dataset))
}

/// Prepares the text and writes the resolved configuration: after this the run exists. `None` when interrupted.
pub(super) fn begin(
    run: &RunFolder,
    start: &Start,
    team: &dyn Team,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Option<(TrainConfig, Dataset)>> {
    let Start { settings, data, init, selected, memory_limit } = start;
    let notes = Notes::new(common.quiet);
    let mut settings = settings.clone();
    let folder = session::data_folder(run.path(), &data.text);
    if folder == run.data() {
        let options = PrepareOptions {
            inputs: inputs(&data.text, data.stories),
            field: data.field.clone(),
            tokenizer: data
                .tokenizer
                .parse()
                .map_err(|error| UsageError::new(format!("tokenizer {}: {error}", data.tokenizer)))?,
            val_fraction: data.val_fraction,
            seed: data.seed,
            out: folder.clone(),
        };
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
    let device = if selected.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
    let is_open = |key: &str| !settings.has(key);
    let (micro_batch_is_open, checkpointing_is_open) = (is_open("micro_batch"), is_open("activation_checkpointing"));
    let (mut config, reasons) = settings.resolve(&facts, device)?;
    for reason in reasons {
        notes.say(reason);
    }
    // Refuse now what could not train, while there is nothing to lose.
    let shape = model_config(&config, &dataset);
    shape.validate()?;
    if micro_batch_is_open {
        let checkpointing = if checkpointing_is_open { Checkpointing::Open } else { Checkpointing::Decided };
        let fitted = fit_to_device(&config, &shape, checkpointing, selected, *memory_limit)?;
        notes.say(fitted.reason);
        config = fitted.config;
    } else if let Some(doubt) = doubt(&config, &shape, selected, *memory_limit) {
        notes.say(doubt);
    }
    session::windows(&config, &dataset)?;
    team::share(team, 0, config.windows_per_step(), config.micro_batch)?;
    sample::check_prompts(&dataset.tokenizer, &config.sample_prompts)?;
    let text = config.to_toml()?;
    write_atomic(&run.config(), |file| Ok(file.write_all(text.as_bytes())?))?;
    Ok(Some((config, dataset)))
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
    Ok(settings)
}

/// A configuration file, or a shipped recipe by its name.
pub fn recipe(path: &Path) -> Result<Settings> {
    match config::shipped(path) {
        Some(text) if !path.exists() => Ok(Settings::from_toml_str(text)?),
        _ => Settings::from_file(path),
    }
}

/// The shape that the configuration and the tokenizer's vocabulary make.
pub fn model_config(config: &TrainConfig, dataset: &Dataset) -> GptConfig {
    config.shape(dataset.manifest.vocab_size)
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
