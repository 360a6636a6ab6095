//! The command line of `ember-train`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use ember_cli::program::{CommonArgs, Outcome, UsageError, parse, run_program};
use ember_host::interrupt::Interrupt;

use crate::commands;
use crate::commands::bench::BenchArgs;
use crate::commands::trial::TrialArgs;
use ember_study::compare::Axis;
use ember_training::config::ConfigError;
use ember_training::memory::keeping::keep_freed_memory;
use ember_training::report::units::parse_bytes;
use ember_training::team::launch;

/// Trains a GPT on your own text.
#[derive(Parser, Debug)]
#[command(
    name = "ember-train",
    version,
    after_help = "Examples:\n  ember-train run                            learn the built-in stories\n  \
                  ember-train run my-writing/                learn every text in a folder\n  \
                  ember-train run my-writing/ --minutes 10       the same, planned for ten minutes\n  \
                  ember-train run --config shakespeare-char-cpu shakespeare.txt\n  \
                  ember-train resume runs/my-writing         go on where a run was interrupted\n  \
                  ember-train compare runs/a runs/b          their curves together, and what they differ in\n  \
                  ember-train ledger --html ledger.html      what training and inference cost, on the newest run\n\n\
                  Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted after saving."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train on a text, or on the built-in stories when none is given
    Run(RunArgs),
    /// Propose what to train on a text in a given time, and predict its loss, memory and time
    Plan(PlanArgs),
    /// Go on with a run that was interrupted, to exactly the same numbers
    Resume(ResumeArgs),
    /// Show that stopping and resuming changes nothing: train 2N steps in one go and in two halves, and compare every bit
    VerifyResume(VerifyResumeArgs),
    /// Turn text into token files once, to train on them many times
    Prepare(PrepareArgs),
    /// Which stretches of a generated text stand word for word in the training text, and where
    Copied(CopiedArgs),
    /// How the model fares on its own words: its loss by position on real text and on its own, and how often it ends in a loop
    Exposure(ExposureArgs),
    /// Measure one batch in every way to use a model: training, scoring, generating; time, memory, operations
    Ledger(LedgerArgs),
    /// Measure how fast a model trains here, part by part, beside what this machine can do
    Bench(BenchArgs),
    /// Draw runs together and list what they differ in; of a single run, draw its losses again
    Compare(CompareArgs),
    /// What the same prompt was continued with through training, step by step
    Timeline(TimelineArgs),
    /// Take the first steps of a configuration, to see whether it fits
    #[command(hide = true, name = "first-steps")]
    Trial(TrialArgs),
    /// List the devices this program can compute on; with --check, compare what one computes with the CPU
    Devices(DevicesArgs),
}

/// Arguments of `run`.
#[derive(Args, Debug, Default)]
pub struct RunArgs {
    /// Text files, folders, .jsonl or .parquet (each also .gz or .zst), a folder that `prepare` made, or - for standard input
    pub text: Vec<String>,
    /// A configuration file, or the name of a shipped one; without it the text and the device decide
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the run [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Change one key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Begin from this model, with its shape and its tokenizer: a run, a checkpoint or a Hugging Face folder
    #[arg(long, value_name = "FOLDER")]
    pub init: Option<String>,
    /// Write TensorBoard event files into the run's folder
    #[arg(long)]
    pub tensorboard: bool,
    /// Memory that training may take, such as 8GB or 500MB [default: what is available]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory_limit: Option<u64>,
    /// Be done in so many minutes: all that is left open is planned for that, and the length is corrected on the way
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// Print every configuration key with its unit, range and default, and end
    #[arg(long)]
    pub help_config: bool,
}

/// Arguments of `plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Text files, folders, .jsonl or .parquet (each also .gz or .zst), or a folder that `prepare` made; none: the built-in stories
    pub text: Vec<String>,
    /// How long the run may take [default: 10, or 30 on a GPU]
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// A configuration file, or the name of a shipped one: what it sets stays
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set one key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The recipe to write, which is replaced [default: plan.toml, which is not]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// What training may take, as 800MB or 16GB [default: what is available]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory_limit: Option<u64>,
    /// Train a few steps of the plan, and show what was predicted beside what is measured
    #[arg(long)]
    pub measure: bool,
    /// Show how the loss is predicted: the formula, the runs it was fitted on, and how far off it is; and end
    #[arg(long)]
    pub show_fit: bool,
    /// With --show-fit: draw it, too
    #[arg(long, value_name = "FILE", requires = "show_fit")]
    pub svg: Option<PathBuf>,
    /// Print what the prediction knows of the text as JSON, and end
    #[arg(long, hide = true)]
    pub facts: bool,
}

/// A length of time above zero, at most a year.
fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes <= 525_600.0 => Ok(minutes),
        _ => Err("give a number of minutes above 0, such as 10 or 0.5".to_owned()),
    }
}

/// Arguments of `resume`.
#[derive(Args, Debug)]
pub struct ResumeArgs {
    /// The run's folder
    pub run: PathBuf,
    /// Change how long the run goes on (max_steps, lr_decay_steps) or how it is looked at, from here on; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Write TensorBoard event files into the run's folder, of what was logged before too if there are none yet
    #[arg(long)]
    pub tensorboard: bool,
}

/// Arguments of `verify-resume`.
#[derive(Args, Debug)]
pub struct VerifyResumeArgs {
    /// As for `run`
    pub text: Vec<String>,
    /// A configuration file, or the name of a shipped one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Change one key of the configuration; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Steps before the stop, and as many after it
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: u64,
}

/// Arguments of `prepare`.
#[derive(Args, Debug)]
pub struct PrepareArgs {
    /// Text files, folders, .jsonl or .parquet (each also .gz or .zst), or - for standard input; none: the built-in stories
    pub text: Vec<String>,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// auto, chars, bytes, bpe:SIZE, or a tokenizer.json
    #[arg(long, default_value = "auto", value_name = "TOKENIZER")]
    pub tokenizer: String,
    /// Field of JSON Lines, or column of Parquet, that holds the text
    #[arg(long, default_value = "text", value_name = "NAME")]
    pub field: String,
    /// Share of the text kept for validation
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    pub val_fraction: f64,
    /// Number of built-in stories, where no text is given
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub stories: u64,
}

/// Arguments of `copied`.
#[derive(Args, Debug)]
pub struct CopiedArgs {
    /// The generated text, or - for standard input: plain, or the JSON lines of `ember-generate text --format json`
    pub file: PathBuf,
    /// The run whose training text is searched, or a folder that `prepare` made [default: the newest run]
    pub run: Option<PathBuf>,
    /// Search these texts instead: files, folders, .jsonl or .parquet (each also .gz or .zst)
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "run")]
    pub corpus: Vec<PathBuf>,
    /// Field of JSON Lines, or column of Parquet, that holds the text of --corpus [default: text]
    #[arg(long, value_name = "NAME")]
    pub field: Option<String>,
    /// Characters from which a stretch counts as copied [default: 50, or 1 with --min-words]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub min_chars: Option<u32>,
    /// Words from which a stretch counts as copied
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub min_words: Option<u32>,
    /// Write the text as a page with what is copied marked
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `exposure`.
#[derive(Args, Debug)]
pub struct ExposureArgs {
    /// The run, or a checkpoint in it [default: the newest run]
    pub run: Option<PathBuf>,
    /// Windows of validation text to begin from
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub windows: u32,
    /// Tokens of real text that come first in each [default: a quarter of the context]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prefix: Option<u32>,
    /// Texts drawn for each window
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub samples: u32,
    /// Tokens written after each prefix to see whether they end in a loop; 0 leaves that out
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub loop_tokens: u32,
    /// Draw the figures as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `ledger`.
#[derive(Args, Debug)]
pub struct LedgerArgs {
    /// A run folder, a checkpoint folder or a Hugging Face folder [default: the newest run under runs/]
    #[arg(conflicts_with = "config")]
    pub run: Option<PathBuf>,
    /// A recipe instead of a run: its shape with random weights
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Change one key of the recipe; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "config")]
    pub set: Vec<String>,
    /// Rows of the batch [default: the run's batch_size, else 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch_size: Option<u32>,
    /// Tokens in each row [default: the model's context]
    #[arg(long, value_name = "N")]
    pub time: Option<usize>,
    /// Tokens at the end of each row that are decoded one by one [default: half of them, at most 64]
    #[arg(long, value_name = "N")]
    pub new_tokens: Option<usize>,
    /// How often each mode is timed, as far as ten seconds suffice
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Measure at several lengths too: how the costs grow
    #[arg(long)]
    pub growth: bool,
    /// Write a page with pictures, which needs nothing else; measures the growth too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Begin even where the memory at hand seems too little
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// The runs' folders; they may still be running
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// What the curves are drawn over
    #[arg(long, value_enum, default_value_t = Axis::Step)]
    pub by: Axis,
    /// Draw losses on a logarithmic scale
    #[arg(long)]
    pub log: bool,
    /// Write the picture here [default: of a single run, its loss.svg]
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Arguments of `timeline`.
#[derive(Args, Debug)]
pub struct TimelineArgs {
    /// The run's folder; it may still be running
    pub run: PathBuf,
    /// Only this one of sample_prompts, counted from 0 [default: all]
    #[arg(long, value_name = "N")]
    pub prompt: Option<usize>,
    /// Only the last so many texts of each prompt
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// Write a page to scroll and play through
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `devices`.
#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// Compare --device with the CPU: every kernel, forward and backward, and small models, in float32 and in bfloat16
    #[arg(long)]
    pub check: bool,
}

/// Parses the arguments, runs the command, reports.
pub fn main() -> ! {
    keep_freed_memory();
    let mut cli: Cli = parse();
    cli.common.threads = cli.common.threads.or_else(launch::threads);
    run_program(&cli.common, |interrupt| run(&cli, interrupt).map_err(as_usage))
}

fn run(cli: &Cli, interrupt: &Interrupt) -> Result<Outcome> {
    match &cli.command {
        Command::Run(args) => commands::run::run(args, &cli.common, interrupt),
        Command::Plan(args) => commands::plan::run(args, &cli.common, interrupt),
        Command::Resume(args) => commands::resume::run(args, &cli.common, interrupt),
        Command::VerifyResume(args) => commands::verify_resume::run(args, &cli.common, interrupt),
        Command::Prepare(args) => commands::prepare::run(args, &cli.common, interrupt),
        Command::Copied(args) => commands::copied::run(args, &cli.common, interrupt),
        Command::Exposure(args) => commands::exposure::run(args, &cli.common, interrupt),
        Command::Ledger(args) => commands::ledger::run(args, &cli.common, interrupt),
        Command::Bench(args) => commands::bench::run(args, &cli.common, interrupt),
        Command::Compare(args) => commands::compare::run(args, &cli.common),
        Command::Timeline(args) => commands::timeline::run(args, &cli.common),
        Command::Trial(args) => commands::trial::run(args, &cli.common),
        Command::Devices(args) => commands::devices::run(args, &cli.common, interrupt),
    }
}

/// A wrong configuration is a wrong argument: exit code 2.
fn as_usage(error: anyhow::Error) -> anyhow::Error {
    if error.chain().any(|cause| cause.is::<ConfigError>()) {
        UsageError::new(format!("{error:#}")).into()
    } else {
        error
    }
}
