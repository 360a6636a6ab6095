//! `ember-train ledger`: what training and inference cost, measured on one batch.

use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_STEP};
use ember_data::{prepare::Dataset, windows::Batch, windows::TrainWindows};
use ember_decoding::run_folder;
use ember_host::names::last_part;
use ember_model::{Gpt, checkpoint, folder};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::io::IsTerminal;

use crate::prelude::*;
use ember_study::ledger::{Entry, Subject, growth, growth::Growth, meter::Meter, modes, modes::Plan, page, table};
use ember_training::config::{
    DeviceKind, OptimizerKind, Settings, TextFacts, TrainConfig, assumed_vocab_size, precision,
};
use ember_training::error::ConfigError;
use ember_training::memory::prediction::{Kernels, training::Step};
use ember_training::memory::{self, fit::check_limits};
use ember_training::run::folder::{CONFIG, run_of};
use ember_training::run::init::Init;
use ember_training::run::text::{data_folder, dataset_for};
use ember_training::units::bytes_beside;

/// Arguments of `ledger`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train ledger                                            the newest run
  ember-train ledger runs/my-writing --html ledger.html
  ember-train ledger --config gpt2-124m --batch-size 4")]
pub struct LedgerArgs {
    /// A run folder, a checkpoint folder, a Hugging Face folder or a model's file (.gguf, ckpt.pt, .bin)
    /// [default: the newest run under runs/]
    #[arg(conflicts_with = "config")]
    pub run: Option<PathBuf>,
    /// A recipe instead of a run: its shape with random weights
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Change one key of the recipe; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "config", conflicts_with = "run")]
    pub set: Vec<String>,
    /// Rows of the batch [default: the run's batch_size, else 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch_size: Option<u32>,
    /// Tokens in each row [default: the model's context]
    #[arg(long, value_name = "N")]
    pub time: Option<usize>,
    /// Tokens at the end of each row that are decoded one by one [default: half of them, at most
    /// 64]
    #[arg(long, value_name = "N")]
    pub new_tokens: Option<usize>,
    /// How often to measure each mode; fewer times if that would take more than ten seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Also measure at several lengths, to show how the costs grow
    #[arg(long)]
    pub growth: bool,
    /// Write a self-contained page with figures; includes --growth
    #[arg(long, value_name = "FILE", value_parser = output_file::page())]
    pub html: Option<PathBuf>,
    /// Start even if there seems to be too little memory
    #[arg(long)]
    pub force: bool,
}

/// Default number of rows, if neither a run nor the command line sets it.
const BATCH_SIZE: usize = 8;

/// Limit of the default for `--new-tokens`: without a cache each token costs a whole forward pass.
const MAX_NEW_TOKENS: usize = 64;

/// Runs the command.
///
/// # Errors
/// When an argument is out of range, there is no such model, it would not fit into memory, or the
/// page cannot be written.
pub fn run(args: &LedgerArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let arguments =
        [("batch_size", "--batch-size", args.batch_size.is_some()), ("seed", "--seed", common.seed.is_some())];
    refuse_set_twice(&args.set, &arguments)?;
    let source = match &args.config {
        Some(path) => Source::of_recipe(path, &args.set)?,
        None => Source::of_run(args.run.as_deref(), &notes)?,
    };
    let (config, new_tokens) = one_pass_config(args, &source, common)?;
    let selected = select(common, &notes)?;
    precision::check(config.precision, &selected).map_err(|error| source.with_advice(error))?;
    check_limits(config.precision, &source.shape, &selected)?;
    refuse_what_cannot_fit(args, &source, &config, &selected)?;

    let (batch, real_text) = source.batch(&config, &notes)?;
    let progress = progress(common.quiet);
    let say = |what: String| {
        progress.set_message(what);
        progress.tick();
    };
    let go_on = || !interrupt.requested();
    let plan = Plan { batch, new_tokens, repeats: args.repeats as usize, config, go_on: &go_on };

    // On a terminal the progress line shows that something happens; elsewhere this display does.
    let _wait = CompileProgress::begin(KERNELS_OF_A_STEP, common.quiet || std::io::stderr().is_terminal());
    say("loading the model".to_owned());
    let mut meter = Meter::new(&selected.device)?;
    let load = |meter: &mut Meter| -> Result<(Gpt, i64)> {
        let before = meter.live()?;
        let gpt = source.model(plan.config.seed, &selected)?;
        Ok((gpt, meter.live()? - before))
    };
    let (gpt, weights) = load(&mut meter)?;
    let subject = subject(&source.name, gpt.config(), &plan, real_text, &selected, &meter);
    let mut number = 0;
    let entries = modes::measure(gpt, weights, &plan, &mut meter, &mut |mode| {
        number += 1;
        say(format!("measuring: {} ({number} of {})", table::title(mode), modes::PASSES));
    })?;

    let mut growth = Vec::new();
    if args.growth || args.html.is_some() {
        let (gpt, weights) = load(&mut meter)?;
        growth = growth::measure(gpt, weights, &plan, &mut meter, &mut |time| {
            say(format!("measuring how the costs grow: {time} of {} tokens", subject.time));
        })?;
    }
    drop(progress);
    if let Some(path) = &args.html {
        let on_page = Subject { model: source.name_on_page.clone(), ..subject.clone() };
        write_file(path, &page::render(&on_page, &entries, &growth))?;
        notes.say(format!("the page is in {}; open it in a browser", path.display()));
    }
    let entries_and_growth = entries.iter().map(Line::Mode).chain(growth.iter().map(Line::Growth));
    let json = || json_lines([Line::Subject(&subject)].into_iter().chain(entries_and_growth));
    answer_beside(args.html.as_deref(), common, || table::render(&subject, &entries, &growth), json)
}

/// Describes the measurement: model, batch and device.
fn subject(
    model: &str,
    shape: &GptConfig,
    plan: &Plan,
    real_text: bool,
    selected: &Selected,
    meter: &Meter,
) -> Subject {
    Subject {
        model: model.to_owned(),
        parameters: shape.parameters() as u64,
        shape: shape.clone(),
        batch_size: plan.batch.batch_size as u64,
        time: plan.batch.context_length as u64,
        new_tokens: plan.new_tokens as u64,
        real_text,
        device: selected.id.clone(),
        device_name: selected.name.clone(),
        repeats: plan.repeats as u64,
        measured_by: meter.measured_by,
    }
}

/// A line of `--format json`.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Subject(&'a Subject),
    Mode(&'a Entry),
    Growth(&'a Growth),
}

/// The model, its text, and its configuration, from a run, a checkpoint or a recipe.
struct Source {
    /// Name shown to the user.
    name: String,
    /// Name without a path, for the page, which may be sent to others.
    name_on_page: String,
    shape: GptConfig,
    /// Path from which the weights are loaded, each time anew; if None, they are random. If the
    /// user named a run, it is the run's path: its training may remove a checkpoint meanwhile.
    weights: Option<PathBuf>,
    /// The run's folder, if it has a configuration.
    run: Option<PathBuf>,
    /// The run's text, if it has one.
    dataset: Option<Dataset>,
    /// The training configuration of the run or the recipe.
    config: TrainConfig,
}

impl Source {
    /// A recipe with random weights. If it begins from a checkpoint, it has the checkpoint's shape.
    fn of_recipe(path: &Path, assignments: &[String]) -> Result<Self> {
        let mut settings = Settings::from_recipe(path)?;
        assignments.iter().try_for_each(|assignment| settings.set(assignment))?;
        let init = settings.init().map(Init::open).transpose()?;
        let vocab_size = match &init {
            Some(init) => init.shape.vocab_size,
            None => assumed_vocab_size(&settings, path)?,
        };
        let facts = TextFacts::assumed(vocab_size);
        if let Some(init) = &init {
            settings.take_shape(&init.named, &init.shape, &facts)?;
        }
        let config = settings.resolve(&facts, DeviceKind::Cpu)?.0;
        let shape = init.map_or_else(|| config.shape(vocab_size), |init| init.shape_by(&config));
        shape.validate()?;
        let path = path.display().to_string();
        let [name, name_on_page] = [path.as_str(), last_part(&path)].map(|name| format!("{name} with random weights"));
        Ok(Self { name, name_on_page, shape, weights: None, run: None, dataset: None, config })
    }

    fn of_run(run: Option<&Path>, notes: &Notes) -> Result<Self> {
        run_folder::find_and_open(run, |found| Self::of_found(found, notes))
    }

    fn of_found(found: run_folder::Found, notes: &Notes) -> Result<Self> {
        notes.say(format!("checkpoint: {found}"));
        folder::verify_checksums_for_inference(&found.folder)?;
        let run = run_of(&found.folder);
        let config = match run {
            Some(run) => TrainConfig::from_file(&run.join(CONFIG))?,
            None => {
                let (config, _) = Settings::default().resolve(&TextFacts::NOTHING, DeviceKind::Cpu)?;
                TrainConfig { optimizer: OptimizerKind::AdamW, batch_size: BATCH_SIZE, seed: 0, ..config }
            }
        };
        let data = run.map(|run| data_folder(run, &config.text)).filter(|data| Dataset::is_in(data));
        let dataset = data.map(|data| dataset_for(&data, &found.folder)).transpose()?;
        let name = run_folder::original_of(&found.folder).display().to_string();
        let shape = folder::read_config(&found.folder)?;
        let name_on_page = run_folder::name_of_existing_checkpoint(&found.folder);
        let run = run.map(Path::to_owned);
        let was_named = found.reason.is_empty();
        let weights = run.clone().filter(|_| !was_named).unwrap_or(found.folder);
        Ok(Self { name, name_on_page, shape, weights: Some(weights), run, dataset, config })
    }

    /// A batch of the run's text, or of random ids without one; and whether it is real text.
    fn batch(&self, config: &TrainConfig, notes: &Notes) -> Result<(Batch, bool)> {
        let TrainConfig { seed, micro_batch, context_length, .. } = *config;
        if let Some(Dataset { manifest, train, .. }) = &self.dataset {
            let windows = TrainWindows::new(train, context_length, seed, manifest.window_rule, manifest.end_of_text)?;
            return Ok((windows.batch(0, micro_batch)?, true));
        }
        notes.say("the model comes without a text: the batch is random token ids, which cost the same");
        Ok((Batch::random(seed, self.shape.vocab_size, micro_batch, context_length), false))
    }

    /// Adds advice if the device lacks the precision: a run's precision cannot be changed here, its
    /// recipe's can.
    fn with_advice(&self, error: ConfigError) -> anyhow::Error {
        let Some(run) = &self.run else { return error.into() };
        let recipe = typed(&run.join(CONFIG));
        let instead = format!(
            "use another --device, or measure its shape with random weights: `ember-train ledger --config {recipe} --set \
             precision=f32`"
        );
        wording::precision_kept(error.into(), &instead)
    }

    fn model(&self, seed: u64, selected: &Selected) -> Result<Gpt> {
        let device = selected.device.clone().autodiff();
        match &self.weights {
            Some(weights) => run_folder::find_and_open(Some(weights), |run_folder::Found { folder, .. }| {
                checkpoint::load(&folder, &device).with_context(|| format!("cannot load {}", folder.display()))
            }),
            None => Ok(Gpt::new(&self.shape, seed, &device)?),
        }
    }
}

/// The configuration of a step that is a single pass over the batch, and the number of tokens of
/// each row that are decoded.
fn one_pass_config(args: &LedgerArgs, source: &Source, common: &CommonArgs) -> Result<(TrainConfig, usize)> {
    let context = source.shape.context_length;
    let time = args.time.unwrap_or(context);
    ensure!(
        (2..=context).contains(&time),
        UsageError::new(format!("--time {time}: the model's context holds {context} tokens; give 2 to {context}"))
    );
    let new = args.new_tokens.unwrap_or((time / 2).min(MAX_NEW_TOKENS));
    ensure!(
        (1..time).contains(&new),
        UsageError::new(format!("--new-tokens {new}: rows have {time} tokens; give 1 to {}", time - 1))
    );
    let mut config = TrainConfig { context_length: time, grad_accum_steps: 1, ..source.config.clone() };
    config.batch_size = args.batch_size.map_or(config.batch_size, |rows| rows as usize);
    config.micro_batch = config.batch_size;
    config.seed = common.seed.unwrap_or(config.seed);
    Ok((config, new))
}

/// Refuses a batch that would run out of memory halfway.
fn refuse_what_cannot_fit(args: &LedgerArgs, source: &Source, config: &TrainConfig, selected: &Selected) -> Result<()> {
    let available = memory::available(None, selected).filter(|_| !args.force);
    let Some(available) = available else { return Ok(()) };
    let logits = 4 * config.tokens_per_step() * source.shape.vocab_size as u64;
    let step = Step::new(config, &source.shape, Kernels::on(&selected.device));
    // Two more copies of the logits: the reference's, and one of the forward pass with a graph,
    // made for the comparison.
    let comparing = step.forward_with_graph().peak_bytes + 2 * logits;
    let needed = comparing.max(step.parts().peak_bytes);
    ensure!(
        needed <= available,
        UsageError::new(format!(
            "{} of {} would take {} of memory, and {} are available; give a smaller --batch-size or --time, or --force",
            counted(config.micro_batch, "row"),
            counted(config.context_length, "token"),
            bytes_beside(needed, available),
            bytes_beside(available, needed)
        ))
    );
    Ok(())
}

/// A progress line on the terminal, cleared however the command ends.
fn progress(quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    bar.with_style(style).with_finish(ProgressFinish::AndClear)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_data::tokenizer::Tokenizer;
    use ember_model::device::{self, DeviceChoice};
    use ember_model::{MlpKind, NormKind, Positions};

    /// Saves a model with `head_size` other than `n_embd / n_head`, which no key can express, in
    /// the existing folder `place`; returns its shape.
    fn save(place: &Path) -> GptConfig {
        let tokenizer = Tokenizer::bytes().unwrap();
        let shape = GptConfig {
            head_size: 10,
            n_inner: 20,
            positions: Positions::Rotary,
            norm: NormKind::RmsNorm,
            mlp: MlpKind::SwiGlu,
            qk_norm: true,
            bias: false,
            ..GptConfig::new(tokenizer.vocab_size(), 16, 1, 2, 8)
        };
        let gpt = Gpt::new(&shape, 1, &device::select(DeviceChoice::Cpu).unwrap().device).unwrap();
        checkpoint::save(&gpt, None, &folder::Settings::new(), place).unwrap();
        tokenizer.save(place).unwrap();
        shape
    }

    #[test]
    fn a_recipe_that_begins_from_a_checkpoint_has_that_one_s_shape() {
        let place = tempfile::tempdir().unwrap();
        let shape = save(place.path());
        let recipe = place.path().join("recipe.toml");
        std::fs::write(&recipe, format!("init = '{}'\ncontext_length = 12\n", place.path().display())).unwrap();
        let source = Source::of_recipe(&recipe, &["dropout=0.1".to_owned()]).unwrap();
        assert_eq!(source.shape, GptConfig { context_length: 12, dropout: 0.1, ..shape });
    }

    #[test]
    fn where_training_removed_the_checkpoint_the_run_s_next_is_loaded() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path();
        let (config, _) = Settings::default().resolve(&TextFacts::assumed(256), DeviceKind::Cpu).unwrap();
        std::fs::write(run.join(CONFIG), config.to_toml().unwrap()).unwrap();
        let checkpoints = run.join(run_folder::CHECKPOINTS);
        let saves = |name: &str| {
            std::fs::create_dir_all(checkpoints.join(name)).unwrap();
            save(&checkpoints.join(name));
            std::fs::write(run.join(run_folder::LATEST), name).unwrap();
        };
        saves("step-00000001");
        let quiet = Notes::new(true);
        let [of_run, of_checkpoint] =
            [run, &checkpoints.join("step-00000001")].map(|named| Source::of_run(Some(named), &quiet).unwrap());
        saves("step-00000002");
        std::fs::remove_dir_all(checkpoints.join("step-00000001")).unwrap();
        let cpu = device::select(DeviceChoice::Cpu).unwrap();
        assert!(of_run.model(1, &cpu).is_ok());
        assert!(of_checkpoint.model(1, &cpu).is_err(), "that one was named, and no other");
    }
}
