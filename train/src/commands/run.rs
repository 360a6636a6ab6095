//! `ember-train run`: a new run, from text to checkpoint.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use ember_data::files::write_atomic;
use ember_data::prepare::{Dataset, PrepareOptions};
use ember_generate::interrupt::Interrupt;
use ember_generate::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_model::device::{self, Selected};
use ember_model::{Gpt, GptConfig};

use super::prepare::{inputs, prepare_shown};
use super::session::{self, Session};
use crate::checkpoint::Progress;
use crate::cli::RunArgs;
use crate::config::{self, DataConfig, DeviceKind, Settings, TextFacts, TrainConfig};
use crate::run_folder::{RunFolder, new_path};
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
    let start = agree(&*team, start(args, common))?;
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
    let gpt = agree(&*team, Gpt::new(&model_config(&config, &dataset), config.seed, &training_device))?;
    let optimizer = session::optimizer(&config);
    let session = Session { team, run, config, dataset, gpt, optimizer, progress: Progress::default(), selected };
    session.train(common, interrupt)
}

/// What is known before there is a folder.
struct Start {
    settings: Settings,
    data: DataConfig,
    selected: Selected,
}

/// Reads the configuration and chooses the device.
fn start(args: &RunArgs, common: &CommonArgs) -> Result<Start> {
    let settings = settings(args, common)?;
    let data = settings.data()?;
    let selected = device::select(launch::device(common.device))?;
    session::say_device(&Notes::new(common.quiet), &selected);
    Ok(Start { settings, data, selected })
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
    let begun = begin(&run, start, team, common, interrupt);
    let begun = begun.inspect_err(|_| {
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
fn begin(
    run: &RunFolder,
    start: &Start,
    team: &dyn Team,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Option<(TrainConfig, Dataset)>> {
    let Start { settings, data, selected } = start;
    let notes = Notes::new(common.quiet);
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
        let Some(manifest) = prepare_shown(&options, common.quiet, interrupt)? else { return Ok(None) };
        notes.say(&manifest.report);
    }
    let dataset = Dataset::open(&folder)?;
    let facts = TextFacts {
        train_tokens: dataset.manifest.train.tokens,
        val_tokens: dataset.manifest.val.tokens,
        vocab_size: dataset.manifest.vocab_size,
    };
    let device = if selected.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
    let (config, reasons) = settings.clone().resolve(&facts, device)?;
    for reason in reasons {
        notes.say(reason);
    }
    // Refuse now what could not train, while there is nothing to lose.
    model_config(&config, &dataset).validate()?;
    session::windows(&config, &dataset)?;
    team::share(team, 0, config.windows_per_step(), config.micro_batch)?;
    let text = config.to_toml()?;
    write_atomic(&run.config(), |file| Ok(file.write_all(text.as_bytes())?))?;
    Ok(Some((config, dataset)))
}

/// What the file, `--set`, `--seed` and the command line's TEXT say together, the later winning.
fn settings(args: &RunArgs, common: &CommonArgs) -> Result<Settings> {
    let mut settings = match &args.config {
        Some(path) => recipe(path)?,
        None if args.text.is_empty() => Settings::from_toml_str(config::DEFAULT)?,
        None => Settings::default(),
    };
    for assignment in &args.set {
        settings.set(assignment)?;
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
    shape(config, dataset.manifest.vocab_size)
}

/// The shape that the configuration makes with so many different tokens.
pub fn shape(config: &TrainConfig, vocab_size: usize) -> GptConfig {
    let mut shape = GptConfig::new(vocab_size, config.context_length, config.n_layer, config.n_head, config.n_embd);
    shape.dropout = config.dropout;
    shape.n_kv_head = config.n_kv_head;
    shape.n_inner = config.n_inner;
    shape.positions = config.positions;
    shape.rope_theta = config.rope_theta;
    shape.norm = config.norm;
    shape.mlp = config.mlp;
    shape.qk_norm = config.qk_norm;
    shape.bias = config.bias;
    shape.tied_head = config.tied_head;
    shape
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
