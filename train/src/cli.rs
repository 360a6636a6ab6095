//! The command line of `ember-train`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use ember_cli::program::{CommonArgs, Outcome, OutputFormat, UsageError, parse, run_program};
use ember_cli::{completions, completions::CompletionsArgs, man_pages, man_pages::ManPagesArgs};
use ember_host::{interrupt::Interrupt, output::is_standard_output};
use ember_study::error::Error as StudyError;
use ember_training::{config::keys, distributed::launch, memory::keeping::keep_freed_memory};

use crate::commands::{bench, compare, copied, devices, exposure, ledger, look, plan};
use crate::commands::{prepare, resume, run, runs, share, timeline, trial, verify_resume};
use crate::wording;

/// Trains a GPT on your own text.
#[derive(Parser, Debug)]
#[command(
    name = "ember-train",
    version,
    mut_arg("seed", |arg| arg.value_parser(seed)),
    after_help = "\
Examples:
  ember-train run                            learn the built-in stories
  ember-train run my-writing/                learn every text in a folder
  ember-train run my-writing/ --minutes 60   the same, planned for an hour instead of ten minutes
  ember-train run --config shakespeare-char-cpu shakespeare.txt
  ember-train resume runs/my-writing         continue an interrupted run
  ember-train runs                           progress, best loss and size of each run
  ember-train compare runs/a runs/b          their curves together, and what differs
  ember-train ledger --html ledger.html      what training and inference cost, for the newest run

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
    Run(run::RunArgs),
    /// Propose what to train on a text in a given time, and predict its loss, memory and time
    Plan(plan::PlanArgs),
    /// Continue an interrupted run, with bit-identical results
    Resume(resume::ResumeArgs),
    /// List the runs with their progress, best loss and size on disk; `runs remove` removes some
    Runs(runs::RunsArgs),
    /// Show that stopping and resuming changes nothing: train 2N steps in one go and in two halves,
    /// and compare every bit
    VerifyResume(verify_resume::VerifyResumeArgs),
    /// Turn text into token files once, to train on them many times
    Prepare(prepare::PrepareArgs),
    /// Analyse a text: its size, its sources, what repeats, what is private
    Look(look::LookArgs),
    /// Find what a generated text copies word for word from the training text, and from where
    Copied(copied::CopiedArgs),
    /// Pack a model into one page that generates text in any browser, without server or network
    Share(share::ShareArgs),
    /// Compare the model on its own words and on real text: its loss by position, and how often it
    /// ends in a loop
    Exposure(exposure::ExposureArgs),
    /// Measure one batch in every way to use a model: training, scoring, generating; time, memory,
    /// operations
    Ledger(ledger::LedgerArgs),
    /// Measure how fast a model trains here, part by part, beside what this machine can do
    Bench(bench::BenchArgs),
    /// Draw the losses of runs together and list what differs; of a single run, draw its losses
    /// again
    Compare(compare::CompareArgs),
    /// Show how the continuation of a prompt changed in training, step by step
    Timeline(timeline::TimelineArgs),
    /// Take the first steps of a configuration, to see whether it fits
    #[command(hide = true, name = "first-steps")]
    Trial(trial::TrialArgs),
    /// List the devices this program can compute on; with --check, compare what one computes with
    /// the CPU
    Devices(devices::DevicesArgs),
    /// Write the completion script for a shell
    Completions(CompletionsArgs),
    /// Write this program's manual pages
    #[command(hide = true)]
    ManPages(ManPagesArgs),
}

impl Command {
    fn trains(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Resume(_) | Self::VerifyResume(_) | Self::Bench(_) | Self::Trial(_))
    }

    /// The file that the command writes beside its result, after its flag.
    fn output_file(&self) -> Option<(&'static str, &Path)> {
        let (flag, file) = match self {
            Self::Plan(args) if args.show_fit => ("--svg", &args.svg),
            Self::Plan(args) => ("--out", &args.out),
            Self::Look(args) => ("--html", &args.html),
            Self::Copied(args) => ("--html", &args.html),
            Self::Share(args) => return Some(("--html", args.html.as_path())),
            Self::Exposure(args) => ("--html", &args.html),
            Self::Ledger(args) => ("--html", &args.html),
            Self::Compare(args) => ("--svg", &args.svg),
            Self::Timeline(args) => ("--html", &args.html),
            Self::Devices(args) => ("--report", &args.report),
            _ => return None,
        };
        Some((flag, file.as_deref()?))
    }

    /// Refuses a result as JSON beside a file that goes to standard output too: they would mix.
    fn check_outputs(&self, format: OutputFormat) -> Result<()> {
        if let Some((flag, file)) = self.output_file() {
            ensure!(
                format == OutputFormat::Text || !is_standard_output(file),
                UsageError::new(format!(
                    "--format json and {flag} both write to standard output; name a file with {flag}, or drop one"
                ))
            );
        }
        Ok(())
    }
}

/// Parses a seed: at most `i64::MAX`, the largest integer that TOML can store.
fn seed(value: &str) -> Result<u64, String> {
    let seed = value.parse::<u64>().ok().filter(|seed| *seed <= i64::MAX as u64);
    seed.ok_or_else(|| format!("it must be a whole number from 0 to {}", i64::MAX))
}

/// The `--set` spelling of a configuration key that was typed as a flag, as in other trainers.
fn as_setting(flag: &str) -> Vec<String> {
    let key = keys::named(flag.trim_start_matches('-'));
    key.map(|key| format!("--set {}=VALUE", key.name)).into_iter().collect()
}

/// Whether the command trains, which decides the advice given when memory runs out.
pub static TRAINS: AtomicBool = AtomicBool::new(false);

/// Parses the arguments, runs the command, reports.
pub fn main() -> ! {
    keep_freed_memory();
    let mut cli: Cli = parse(as_setting);
    TRAINS.store(cli.command.trains(), Relaxed);
    cli.common.threads = cli.common.threads.or_else(launch::threads);
    run_program(&cli.common, |interrupt| match run(&cli, interrupt) {
        Err(error) if matches!(error.downcast_ref(), Some(StudyError::Stopped)) => Ok(Outcome::Interrupted),
        ended => ended.map_err(wording::reworded),
    })
}

fn run(cli: &Cli, interrupt: &Interrupt) -> Result<Outcome> {
    cli.command.check_outputs(cli.common.format)?;
    match &cli.command {
        Command::Run(args) => run::run(args, &cli.common, interrupt),
        Command::Plan(args) => plan::run(args, &cli.common, interrupt),
        Command::Resume(args) => resume::run(args, &cli.common, interrupt),
        Command::Runs(args) => runs::run(args, &cli.common),
        Command::VerifyResume(args) => verify_resume::run(args, &cli.common, interrupt),
        Command::Prepare(args) => prepare::run(args, &cli.common, interrupt),
        Command::Look(args) => look::run(args, &cli.common, interrupt),
        Command::Copied(args) => copied::run(args, &cli.common, interrupt),
        Command::Share(args) => share::run(args, &cli.common, interrupt),
        Command::Exposure(args) => exposure::run(args, &cli.common, interrupt),
        Command::Ledger(args) => ledger::run(args, &cli.common, interrupt),
        Command::Bench(args) => bench::run(args, &cli.common, interrupt),
        Command::Compare(args) => compare::run(args, &cli.common),
        Command::Timeline(args) => timeline::run(args, &cli.common),
        Command::Trial(args) => trial::run(args, &cli.common),
        Command::Devices(args) => devices::run(args, &cli.common, interrupt),
        Command::Completions(args) => completions::run::<Cli>(args),
        Command::ManPages(args) => man_pages::run::<Cli>(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn examples_in_the_help_run() {
        let (tried, refused) = ember_cli::examples::tried(&Cli::command());
        assert!(tried >= 40 && refused.is_empty(), "{tried}: {refused:?}");
    }

    #[test]
    fn the_help_wraps_well() {
        assert_eq!(ember_cli::examples::badly_wrapped(&Cli::command()), [""; 0]);
    }
}
