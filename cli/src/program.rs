//! The common outermost layer of both programs: shared flags, threads, exit codes, one-line errors.
//!
//! A program's `main` parses its arguments and passes one closure to [`run_program`], which runs it
//! in its own thread pool and turns every outcome (success, an error, an interruption, a closed
//! pipe, a panic) into an exit code and at most one line on standard error. The commands themselves
//! are elsewhere.

#![allow(unsafe_code)] // sets the environment before there are threads

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};

use anyhow::{Context, Result};
use clap::{Args, Parser, ValueEnum, error::ErrorKind};
use ember_host::{file_error::one_line, interrupt::Interrupt};
use ember_kernels::simd;
use ember_model::{device::DeviceChoice, recorded};

use crate::arguments;
use crate::failure::{self, Panic};
use crate::interrupt::{self, INTERRUPTED};
use crate::terminal;
use crate::wording;

pub use crate::interrupt::exit;
pub use crate::usage::UsageError;

/// Stack of a pool thread: tensor kernels recurse deeply, and the default 2 MiB is too little.
const STACK_BYTES: usize = 64 << 20;

/// The flags that every command of both programs takes.
#[allow(rustdoc::broken_intra_doc_links)] // these are the words of `--help`
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// Where to compute: auto, cpu, wgpu[:N] or cuda[:N]; auto picks the first that works
    #[arg(long, global = true, default_value = "auto", value_name = "DEVICE", help_heading = "Everywhere")]
    pub device: DeviceChoice,

    /// Number of CPU threads [default: one for each core]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Everywhere")]
    pub threads: Option<u32>,

    /// Seed of all random draws: the same seed gives the same result
    #[arg(long, global = true, value_name = "N", value_parser = seed, allow_negative_numbers = true, help_heading = "Everywhere")]
    pub seed: Option<u64>,

    /// How results are written to standard output
    #[arg(long, global = true, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT", help_heading = "Everywhere")]
    pub format: OutputFormat,

    /// Write results and errors only, no notes
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub quiet: bool,
}

/// How a result is written to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Text,
    /// One JSON object on each line, documented and stable.
    Json,
}

impl OutputFormat {
    /// Writes a result on one line: as JSON, or as text for people.
    ///
    /// # Errors
    /// When the JSON cannot be made, or the line not written.
    pub fn write_line(
        self,
        out: &mut dyn Write,
        json: impl FnOnce() -> serde_json::Result<String>,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let line = if self == Self::Json { json()? } else { text() };
        Ok(writeln!(out, "{line}")?)
    }
}

fn seed(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("it must be a whole number from 0 to {}", u64::MAX))
}

/// How a command ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command is complete.
    Done,
    /// A signal interrupted it; its partial result is saved or shown.
    Interrupted,
}

/// An error that another process, started together with this one, reports for both: this one ends
/// with the same code and without a line.
#[derive(Debug, thiserror::Error)]
#[error("another process says why (exit code {0})")]
pub struct ReportedElsewhere(pub u8);

/// The exit code for an error: 2 for wrong arguments, else 1.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    wording::line(error.as_ref()).exit_code()
}

/// Prints an error that does not end the program, in one line.
pub fn say_error(error: &anyhow::Error) {
    terminal::say(format_args!("error: {}", one_line(&wording::line(error.as_ref()).words())));
}

/// Notes for people, one line each on standard error, suppressed by `--quiet`.
#[derive(Clone, Copy, Debug)]
pub struct Notes {
    quiet: bool,
}

impl Notes {
    /// Notes, printed unless `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Prints one line.
    pub fn say(&self, line: impl fmt::Display) {
        if !self.quiet {
            terminal::say(line);
        }
    }

    /// Whether notes are printed at all.
    pub fn are_shown(&self) -> bool {
        !self.quiet
    }
}

/// Parses the command line; an error is printed in one line and ends the process. `meant` suggests
/// what an unknown flag may mean, in any of the commands.
pub fn parse<C: Parser>(meant: impl Fn(&str) -> Vec<String>) -> C {
    let typed: Vec<OsString> = std::env::args_os().collect();
    parsed::<C>(&typed).unwrap_or_else(|error| {
        if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            show_help(&error)
        }
        let line = arguments::line(C::command(), &error, meant);
        let file = arguments::file_taken_for_flag(&error, &typed).unwrap_or_default();
        terminal::say(format_args!("error: {}", one_line(&(line + &file))));
        exit(2)
    })
}

/// Parses the words typed. `help ... --help` is accepted as `help ...`.
fn parsed<C: Parser>(typed: &[OsString]) -> Result<C, clap::Error> {
    let is_help = typed.get(1).is_some_and(|first| first == "help");
    let is_asked_again = |word: &OsString| is_help && (word == "--help" || word == "-h");
    let command = arguments::with_negative_numbers(C::command());
    let matches = command.try_get_matches_from(typed.iter().filter(|word| !is_asked_again(word)))?;
    C::from_arg_matches(&matches).map_err(|error| error.format(&mut C::command()))
}

/// Prints help, or the version, and ends the process.
fn show_help(help: &clap::Error) -> ! {
    match help.print().and_then(|()| io::stdout().flush()) {
        // It could not be printed; a reader that closed the pipe has enough.
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
            terminal::say(format_args!("error: cannot write to standard output: {why}"));
            exit(1)
        }
        _ => exit(help.exit_code() as u8),
    }
}

/// Runs a whole command and ends the process with its exit code: 0 done, 1 failed, 2 wrong
/// arguments, 130 interrupted.
///
/// The command runs inside a pool of `--threads` threads: CPU kernels started inside the pool need
/// not wake it for every operation. Errors and panics become one line on standard error; a closed
/// pipe ends quietly with 0. The environment variable `RUST_BACKTRACE` brings panics back in full,
/// for debugging.
pub fn run_program(common: &CommonArgs, command: impl FnOnce(&Interrupt) -> Result<Outcome> + Send) -> ! {
    failure::remember_panics();
    quieten_wayland();
    let whole = || -> Result<Outcome> {
        simd::limit().map_err(UsageError::new)?;
        recorded::is_allowed().map_err(UsageError::new)?;
        let interrupt = interrupt::install()?;
        let threads = common.threads.unwrap_or(0) as usize; // 0: as many as there are cores
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .stack_size(STACK_BYTES)
            .build()
            .with_context(|| not_started(common.threads))?;
        pool.install(|| command(&interrupt))
    };
    let ending = match panic::catch_unwind(AssertUnwindSafe(whole)) {
        Ok(result) => ending_of(result),
        Err(payload) => ending_of_panic(&failure::first_panic(&*payload)),
    };
    if let Some(line) = ending.line {
        terminal::say(format_args!("error: {line}"));
    }
    let _ = io::stdout().flush();
    exit(ending.code)
}

/// The message when the requested number of threads, or one per core, cannot be started.
fn not_started(threads: Option<u32>) -> String {
    match threads {
        Some(threads) => format!("cannot start {threads} threads; try a smaller --threads"),
        None => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            format!("cannot start a thread for each core, {cores} in all; try --threads 1")
        }
    }
}

/// Suppresses a foreign line on the terminal: the search for graphics adapters loads Wayland's
/// library if there is one, which complains on standard error if the session has not set its
/// folder, as over ssh. Any folder without a socket will do.
fn quieten_wayland() {
    const FOLDER: &str = "XDG_RUNTIME_DIR";
    if cfg!(target_os = "linux") && std::env::var_os(FOLDER).is_none() {
        // SAFETY: called before the program starts its first thread.
        unsafe { std::env::set_var(FOLDER, std::env::temp_dir()) };
    }
}

/// An exit code, and a line that explains it if necessary.
#[derive(Debug, PartialEq)]
struct Ending {
    code: u8,
    line: Option<String>,
}

fn ending_of(result: Result<Outcome>) -> Ending {
    match result {
        Ok(Outcome::Done) => Ending { code: 0, line: None },
        Ok(Outcome::Interrupted) => Ending { code: INTERRUPTED, line: None },
        Err(error) if error.chain().any(is_broken_pipe) => Ending { code: 0, line: None },
        Err(error) => match error.chain().find_map(|cause| cause.downcast_ref::<ReportedElsewhere>()) {
            Some(ReportedElsewhere(code)) => Ending { code: *code, line: None },
            None => {
                let line = wording::line(error.as_ref());
                Ending { code: line.exit_code(), line: Some(one_line(&line.words())) }
            }
        },
    }
}

fn ending_of_panic(panic: &Panic) -> Ending {
    // `println!` panics with this if the pipe's reader is gone.
    let message = &panic.message;
    if message.contains("failed printing to") && message.contains("Broken pipe") {
        return Ending { code: 0, line: None };
    }
    Ending { code: 1, line: Some(failure::of_panic(panic)) }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    let kind = cause
        .downcast_ref::<io::Error>()
        .map(io::Error::kind)
        .or_else(|| cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind));
    kind == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use anyhow::anyhow;
    use clap::Subcommand;

    #[derive(Debug, Parser)]
    #[command(name = "ember")]
    struct Cli {
        #[command(subcommand)]
        command: Commands,
    }

    #[derive(Debug, Subcommand)]
    enum Commands {
        Write,
    }

    #[test]
    fn help_that_is_asked_for_help_helps() {
        let kind = |words: &str| {
            let typed: Vec<OsString> = ["ember"].into_iter().chain(words.split(' ')).map(OsString::from).collect();
            parsed::<Cli>(&typed).unwrap_err().kind()
        };
        for words in ["help", "help --help", "help -h", "help write --help", "write --help"] {
            assert_eq!(kind(words), ErrorKind::DisplayHelp, "{words}");
        }
        assert_eq!(kind("help wirte"), ErrorKind::InvalidSubcommand);
    }

    #[test]
    fn each_way_to_end_has_its_code() {
        assert_eq!(ending_of(Ok(Outcome::Done)), Ending { code: 0, line: None });
        assert_eq!(ending_of(Ok(Outcome::Interrupted)), Ending { code: 130, line: None });
        assert_eq!(ending_of(Err(anyhow!("no"))), Ending { code: 1, line: Some("no".into()) });
        let usage = anyhow::Error::new(UsageError::new("--top-p is 2; it must be in (0, 1]")).context("cannot start");
        assert_eq!(
            ending_of(Err(usage)),
            Ending { code: 2, line: Some("cannot start: --top-p is 2; it must be in (0, 1]".into()) }
        );
    }

    #[test]
    fn who_named_no_number_of_threads_is_told_of_one() {
        assert_eq!(not_started(Some(900)), "cannot start 900 threads; try a smaller --threads");
        let line = not_started(None);
        assert!(
            line.starts_with("cannot start a thread for each core, ") && line.ends_with("try --threads 1"),
            "{line}"
        );
    }

    #[test]
    fn an_error_of_many_lines_becomes_one() {
        let error = anyhow!("first\n   second\n\nthird").context("cannot read a.txt");
        assert_eq!(ending_of(Err(error)).line.unwrap(), "cannot read a.txt: first; second; third");
    }

    #[test]
    fn a_closed_pipe_is_quiet_wherever_it_stands_in_the_chain() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(ending_of(Err(anyhow::Error::new(closed()).context("cannot write"))).code, 0);
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = serde_json::to_writer(Closed, &[1]).unwrap_err();
        assert_eq!(ending_of(Err(error.into())), Ending { code: 0, line: None });
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(ending_of(Err(full.into())).code, 1);
        let panic = Panic::without_place("failed printing to stdout: Broken pipe (os error 32)");
        assert_eq!(ending_of_panic(&panic), Ending { code: 0, line: None });
    }

    #[test]
    fn what_another_process_says_is_not_said_again() {
        let error = anyhow::Error::new(ReportedElsewhere(2)).context("cannot start");
        assert_eq!(ending_of(Err(error)), Ending { code: 2, line: None });
    }
}
