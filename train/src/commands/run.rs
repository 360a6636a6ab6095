//! `ember-train run`: a new run, from text to checkpoint.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ember_data::prepare::{Dataset, PrepareOptions};
use ember_generate::interrupt::Interrupt;
use ember_generate::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_model::device::Selected;
use ember_model::{Gpt, GptConfig, device};

use super::plan::memory_limit;
use super::prepare::{inputs, prepare_shown};
use super::session::{self, Session};
use crate::checkpoint::Progress;
use crate::cli::RunArgs;
use crate::clock::{Clock, Pace};
use crate::config::{self, DataConfig, DeviceKind, Settings, TextFacts, TrainConfig};
use crate::plan::text::Statistics;
use crate::plan::{Wish, propose};
use crate::report::units::duration;
use crate::run_folder::{RunFolder, new_path};

/// The share of the promised time in which the device may be measured, and the most there is to measure.
const MEASURING_SHARE: f64 = 0.1;
const MEASURING: Duration = Duration::from_secs(18);

/// Runs the command.
///
/// # Errors
/// When an argument or the text is wrong, the folder holds a run already, or something cannot be written.
pub fn run(args: &RunArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if args.help_config {
        writeln!(std::io::stdout(), "{}", config::help()).context("cannot write to standard output")?;
        return Ok(Outcome::Done);
    }
    let began = Instant::now();
    let notes = Notes::new(common.quiet);
    let settings = settings(args, common)?;
    let data = settings.data()?;
    let selected = device::select(common.device)?;
    session::say_device(&notes, &selected);

    let path = args.out.clone().unwrap_or_else(|| new_path(&run_name(&data.text)));
    let fresh = !path.exists();
    let run = RunFolder::create(&path)?;
    let promise = args.minutes.map(|minutes| Promise { began, seconds: 60.0 * minutes });
    let begun = begin(&run, settings, &data, &selected, promise, common, interrupt);
    let Some((config, dataset, pace)) = begun.inspect_err(|_| {
        if fresh {
            // Nothing was learned: leave nothing behind.
            let _ = std::fs::remove_dir_all(&path);
        }
    })?
    else {
        return Ok(Outcome::Interrupted);
    };

    let training_device = selected.device.clone().autodiff();
    let gpt = Gpt::new(&model_config(&config, &dataset), config.seed, &training_device)?;
    let optimizer = session::optimizer(&config);
    let clock = promise.map(|promise| Clock::new(promise.began, promise.seconds, pace));
    let session = Session { run, config, dataset, gpt, optimizer, progress: Progress::default(), selected, clock };
    session.train(common, interrupt)
}

/// Prepares the text and writes the resolved configuration: after this the run exists. `None` when interrupted.
fn begin(
    run: &RunFolder,
    settings: Settings,
    data: &DataConfig,
    selected: &Selected,
    promise: Option<Promise>,
    common: &CommonArgs,
    interrupt: &Interrupt,
) -> Result<Option<(TrainConfig, Dataset, Pace)>> {
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
    let (config, reasons, pace) = match promise {
        Some(promise) => planned(settings, &dataset, selected, promise, &notes)?,
        None => {
            let facts = TextFacts {
                train_tokens: dataset.manifest.train.tokens,
                val_tokens: dataset.manifest.val.tokens,
                vocab_size: dataset.manifest.vocab_size,
            };
            let device = if selected.gpu { DeviceKind::Gpu } else { DeviceKind::Cpu };
            let (config, reasons) = settings.resolve(&facts, device)?;
            (config, reasons, Pace { step_s: 0.0, look_s: 0.0 })
        }
    };
    for reason in reasons {
        notes.say(reason);
    }
    // Refuse now what could not train, while there is nothing to lose.
    model_config(&config, &dataset).validate()?;
    session::windows(&config, &dataset)?;
    run.write_config(&config)?;
    Ok(Some((config, dataset, pace)))
}

/// A promise that the command ends at a time.
#[derive(Clone, Copy)]
struct Promise {
    began: Instant,
    seconds: f64,
}

/// What the settings leave open, planned for the time that is left.
fn planned(
    settings: Settings,
    dataset: &Dataset,
    selected: &Selected,
    promise: Promise,
    notes: &Notes,
) -> Result<(TrainConfig, Vec<String>, Pace)> {
    let text = Statistics::of(dataset, 1.0);
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
    let wish = Wish { settings, seconds, memory_bytes: memory_limit(None, selected), measuring };
    let plan = propose(&wish, dataset, text, selected)?;
    notes.say(format!(
        "planned for {}: validation loss about {:.2} (between {:.2} and {:.2})",
        duration(promise.seconds),
        plan.loss.loss,
        plan.loss.low,
        plan.loss.high
    ));
    let pace = plan.pace();
    Ok((plan.config, [plan.reasons, plan.warnings].concat(), pace))
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
