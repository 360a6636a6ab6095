//! `ember-train bench`: measures how fast a model trains on this device.

use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_STEP};
use ember_cli::shape::shape;
use ember_data::windows::{TrainWindows, ValWindows, WindowRule};
use ember_data::{prepare::Dataset, random, tokens::TokenFile};
use ember_decoding::{bench::Spread, run_folder};
use ember_kernels::gpu::attention_report;
use ember_model::{device::type_name, folder};
use rand_chacha::rand_core::Rng;
use serde_json::json;

use ember_study::bench::{Speed, Task, measure};
use ember_training::config::{
    self, ConfigError, Precision, Settings, TextFacts, TrainConfig, assumed_vocab_size, keys, precision,
};
use ember_training::memory::fit::{Undecided, fit_to_memory, keeps_freed_memory};
use ember_training::run::folder::{CONFIG, run_of};
use ember_training::run::{check_size, device_kind, text::data_folder, text::windows};
use ember_training::{memory, memory::prediction::Kernels};

use crate::prelude::*;

/// Arguments of `bench`.
#[derive(Args, Debug)]
#[command(after_help = "\
Steps are timed as a whole. Their parts are timed in other steps, waiting for each part, so their sum may be larger. \
Every few steps a large matrix product is timed too: `of a product` is the ratio of the step's model FLOP/s to the product's.

Examples:
  ember-train bench                                      the recipe of the stories
  ember-train bench --shape gpt2 --batch 4 --set precision=bf16
  ember-train bench --shape 6x6x384x65x256 --batch 8     layers, heads, width, vocabulary, context
  ember-train bench --config shakespeare-char --set activation_checkpointing=true")]
pub struct BenchArgs {
    /// A run: its model, its settings, its text
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,
    /// A recipe, on random tokens
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    config: Option<PathBuf>,
    /// A shape, on random tokens: gpt2, gpt2-medium, or LAYERSxHEADSxWIDTHxVOCABULARYxCONTEXT
    #[arg(long, value_name = "SHAPE", value_parser = shape, conflicts_with_all = ["from", "config"])]
    shape: Option<GptConfig>,
    /// Windows per step [default: the recipe's; 8 with --shape]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: Option<u32>,
    /// Change one key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Memory that the steps may take, such as 8GB or 500MB [default: what is available]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, allow_hyphen_values = true)]
    memory_limit: Option<u64>,
    /// Steps to time [default: as many as ten seconds allow, 5 to 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: Option<u32>,
    /// Untimed steps before them, 3 at least
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100_000))]
    warmup: u32,
}

/// Default number of windows in a step, for `--shape`.
const BATCH_SIZE: usize = 8;

/// Runs the command.
///
/// # Errors
/// When an argument is wrong, the model would not fit into memory, or the device fails.
pub fn run(args: &BenchArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let selected = select(common, &notes)?;
    let Subject { config, shape, data } = Subject::new(args, common, &selected, &notes)?;
    notes.say(describe(&config, &shape));
    let windows = match &data {
        Some(folder) => windows(&config, &open_text(folder, &shape)?)?,
        None => random_windows(&config, shape.vocab_size)?,
    };
    let task = Task { config: &config, shape: &shape, windows, warmup: args.warmup, steps: args.steps };
    let wait = CompileProgress::begin(KERNELS_OF_A_STEP, common.quiet);
    let speed = measure(task, &selected, &|| !interrupt.requested())?;
    drop(wait);
    attention_report().iter().for_each(|line| notes.say(line));
    let json = || {
        let subject = json!({
            "device": selected.id, "device_name": selected.name, "threads": rayon::current_num_threads(),
            "parameters": shape.parameters(), "shape": shape, "precision": config.precision,
            "optimizer": config.optimizer, "activation_checkpointing": config.activation_checkpointing,
            "batch_size": config.batch_size, "grad_accum_steps": config.grad_accum_steps,
            "micro_batch": config.micro_batch, "tokens_per_step": config.tokens_per_step(),
        });
        json_line(&Joined { first: subject, then: &speed })
    };
    answer(common, || table(&speed, config.precision), json)
}

/// Opens the run's text and checks that it fits the model: it may have been prepared anew since.
fn open_text(folder: &Path, shape: &GptConfig) -> Result<Dataset> {
    let dataset = Dataset::open(folder)?;
    let tokens = dataset.manifest.vocab_size;
    ensure!(
        tokens <= shape.vocab_size,
        "{}: its {tokens} different tokens are more than the {} of the run's model; prepare it again with the run's tokenizer",
        folder.display(),
        shape.vocab_size
    );
    Ok(dataset)
}

/// The model that is measured, and its data.
struct Subject {
    config: TrainConfig,
    shape: GptConfig,
    /// Folder of the prepared tokens; if None, random tokens are used.
    data: Option<PathBuf>,
}

impl Subject {
    fn new(args: &BenchArgs, common: &CommonArgs, selected: &Selected, notes: &Notes) -> Result<Self> {
        let source = source(args, selected)?;
        let mut settings = source.settings(args, common)?;
        if let Some(reason) = precision::settle(&mut settings, selected)? {
            notes.say(wording::note(&reason));
        }
        settings.check_parts()?;
        let open = Undecided::by(&settings);
        let (config, _) = settings.resolve(&TextFacts::assumed(source.vocab_size), device_kind(selected))?;
        let shape = source.shape(&config);
        check_size(&config, &shape, selected, 1)?;
        let config = match memory::available(args.memory_limit, selected) {
            Some(available) => fitted(config, &shape, open, available, selected, notes)?,
            None => config, // a GPU does not report its memory: the first step shows whether it suffices
        };
        let data = source.saved.map(|run| data_folder(&run.folder, &config.text)).filter(|data| Dataset::is_in(data));
        if data.is_none() {
            notes.say("the tokens are random, which costs the same as a text");
        }
        Ok(Self { config, shape, data })
    }
}

/// The configuration, with what is left `open` chosen so that a step fits into `available` bytes,
/// and a note if that changes it. The allocator then keeps freed memory where a run's would.
fn fitted(
    config: TrainConfig,
    shape: &GptConfig,
    open: Undecided,
    available: u64,
    selected: &Selected,
    notes: &Notes,
) -> Result<TrainConfig> {
    let fitted = fit_to_memory(&config, shape, Kernels::on(&selected.device), open, available)?;
    if fitted.config != config {
        notes.say(&fitted.reason);
    }
    keeps_freed_memory(&fitted.config, shape, selected, Some(available));
    Ok(fitted.config)
}

/// What the arguments name: a run, a recipe or a shape.
struct Source {
    settings: Settings,
    vocab_size: usize,
    saved: Option<SavedRun>,
}

/// A run's folder, and its model's shape.
struct SavedRun {
    folder: PathBuf,
    shape: GptConfig,
}

impl Source {
    /// The settings, changed by the arguments.
    fn settings(&self, args: &BenchArgs, common: &CommonArgs) -> Result<Settings> {
        refuse_set_twice(&args.set, &[("batch_size", "--batch", args.batch.is_some())])?;
        let mut settings = self.settings.clone();
        if let Some(batch) = args.batch {
            settings.micro_batch = None;
            settings.set(&format!("batch_size={batch}"))?;
        }
        set_all(&mut settings, &args.set, &[], common)?;
        // A run's `init` is allowed: it makes no step slower.
        let begun_from = self.saved.as_ref().and(self.settings.init());
        if let Some(init) = settings.init().filter(|init| begun_from != Some(*init)) {
            bail!(UsageError::new(format!("init = {init}: bench uses random weights; leave init out")));
        }
        Ok(settings)
    }

    /// The shape of a model by `config`. The size of a run's heads, which no key sets, may be other
    /// than the width divided by their number.
    fn shape(&self, config: &TrainConfig) -> GptConfig {
        let mut shape = config.shape(self.vocab_size);
        if let Some(SavedRun { shape: saved, .. }) = &self.saved
            && (saved.n_embd, saved.n_head) == (shape.n_embd, shape.n_head)
        {
            shape.head_size = saved.head_size;
        }
        shape
    }
}

/// The configuration of the run, the recipe or the shape named by the arguments.
fn source(args: &BenchArgs, selected: &Selected) -> Result<Source> {
    if let Some(run) = &args.from {
        return run_source(run);
    }
    if let Some(shape) = &args.shape {
        return Ok(Source { settings: shape_settings(shape)?, vocab_size: shape.vocab_size, saved: None });
    }
    let (settings, name) = match &args.config {
        Some(path) => (Settings::from_recipe(path)?, path.as_path()),
        None if selected.gpu => (Settings::default(), Path::new("")),
        None => (Settings::from_toml_str(config::DEFAULT)?, Path::new("stories-cpu")),
    };
    let mut named = settings.clone();
    let mut tokenizer = args.set.iter().filter(|assignment| keys::assigned_name(assignment) == "tokenizer");
    tokenizer.try_for_each(|assignment| named.set(assignment))?;
    let vocab_size = assumed_vocab_size(&named, name)?;
    Ok(Source { settings, vocab_size, saved: None })
}

fn run_source(run: &Path) -> Result<Source> {
    let found = run_folder::find(Some(run))?;
    let own = run_of(&found.folder).ok_or_else(|| {
        UsageError::new(format!(
            "--from {}: it has no config.toml with its training settings; name a run that ember-train made, or give --shape",
            run.display()
        ))
    })?;
    let settings = Settings::from_file(&own.join(CONFIG))?;
    let shape = folder::read_config(&found.folder)?;
    Ok(Source { settings, vocab_size: shape.vocab_size, saved: Some(SavedRun { folder: own.to_owned(), shape }) })
}

/// The configuration for a bare shape, as in other projects' benchmarks: GPT-2, AdamW, no dropout.
fn shape_settings(shape: &GptConfig) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    settings.set("architecture=gpt2")?;
    settings.set("optimizer=adamw")?;
    for (key, size) in [
        ("n_layer", shape.n_layer),
        ("n_head", shape.n_head),
        ("n_embd", shape.n_embd),
        ("context_length", shape.context_length),
        ("batch_size", BATCH_SIZE),
        ("dropout", 0),
    ] {
        settings.set(&format!("{key}={size}"))?;
    }
    Ok(settings)
}

/// Maximum number of random tokens: windows are drawn from all of them, and may repeat.
const MAX_RANDOM_TOKENS: usize = 4 << 20;

/// Windows over random token ids.
pub fn random_windows(config: &TrainConfig, vocab_size: usize) -> Result<(TrainWindows, ValWindows)> {
    let context = config.context_length;
    let wanted = 16 * config.tokens_per_step() as usize;
    let count = wanted.min(MAX_RANDOM_TOKENS).max(2 * context + 2);
    let mut rng = random::rng(config.seed, &[]);
    let ids: Vec<u32> = (0..count).map(|_| rng.next_u32() % vocab_size as u32).collect();
    let tokens = TokenFile::from_ids(&ids, vocab_size)?;
    let rule = WindowRule::Anywhere;
    Ok((TrainWindows::new(&tokens, context, config.seed, rule, None)?, ValWindows::new(&tokens, context, rule, None)?))
}

/// One line that describes the model, the batch and the precision.
fn describe(config: &TrainConfig, shape: &GptConfig) -> String {
    let TrainConfig { n_layer, n_head, n_embd, context_length, batch_size, grad_accum_steps, micro_batch, .. } = config;
    let windows = match (grad_accum_steps, micro_batch == batch_size) {
        (1, true) => format!("{batch_size}"),
        _ => format!("{} (in passes of {micro_batch})", config.windows_per_step()),
    };
    let [vocab_size, parameters] = [shape.vocab_size, shape.parameters()].map(|number| grouped(number as u64));
    let (precision, optimizer) = (word(config.precision), word(config.optimizer));
    let [layers, heads] = [(n_layer, "layer"), (n_head, "head")].map(|(number, noun)| counted(number, noun));
    let windows = if config.windows_per_step() == 1 { "1 window".to_owned() } else { format!("{windows} windows") };
    format!(
        "{layers} x {heads} x {n_embd}, {vocab_size} tokens in the vocabulary, {parameters} parameters; {windows} of \
         {context_length} tokens per step, {precision}, {optimizer}"
    )
}

/// The result as a table of text.
fn table(speed: &Speed, precision: Precision) -> String {
    let ms =
        |spread: &Spread| format!("{:>9.2} ({:.2} to {:.2})", 1e3 * spread.median, 1e3 * spread.min, 1e3 * spread.max);
    let parts = &speed.parts;
    let Spread { median, min, max } = speed.utilisation;
    let [median, least, most] = [median, min, max].map(|share| format!("{:.1}%", 100.0 * share));
    let product = speed.product_flops_per_s / 1e9;
    let in_type = type_name(precision::float_dtype(precision));
    let peak = match speed.reserved_bytes {
        Some(reserved) => format!("{} in use, {} held", bytes(speed.peak_bytes), bytes(reserved)),
        None => bytes(speed.peak_bytes),
    };
    let size = speed.product_size;
    let rows = [
        ("tokens/s", format!("{:>9}", grouped(speed.tokens_per_s.round() as u64))),
        ("ms per step", format!("{}, {}", ms(&speed.step_s), counted(speed.steps_s.len(), "step"))),
        ("  data", ms(&parts.data_s)),
        ("  forward", ms(&parts.forward_s)),
        ("  backward", ms(&parts.backward_s)),
        ("  optimizer", ms(&parts.optimizer_s)),
        ("GFLOP/s", format!("{:>9.1}", speed.flops_per_s / 1e9)),
        (
            "of a product",
            format!("{median:>9} ({least} to {most}) of {product:.1} GFLOP/s, {size} x {size} x {size} in {in_type}"),
        ),
        ("copy, GB/s", format!("{:>9.1} read and written", speed.copy_bytes_per_s / 1e9)),
        ("first step", format!("{:>9.2} s, the model created in {:.2} s", speed.first_step_s, speed.model_s)),
        ("peak memory", format!("{peak:>9}")),
    ];
    rows.map(|(name, value)| format!("{name:<14}{value}\n")).concat()
}
