//! The commands of the program `ember-generate`, which read and write text.

pub mod bench;
pub mod choices;
pub mod constraint_args;
mod convert;
mod draft;
pub mod elsewhere;
mod explain;
mod knob_args;
mod lines;
mod loaded;
mod model_args;
mod progress;
pub mod prompts;
mod replay;
mod score;
pub mod serve;
mod session;
mod text;
mod text_args;
mod text_output;
mod totals;
pub mod trace_file;

use anyhow::Result;
use clap::{Parser, Subcommand};

use ember_cli::program::{CommonArgs, Outcome};
use ember_cli::{completions, completions::CompletionsArgs, devices, man_pages, man_pages::ManPagesArgs};
use ember_host::interrupt::Interrupt;

/// Writes with a GPT that ember-train trained, or with any GPT-2, Llama or Qwen3 from Hugging Face.
#[derive(Debug, Parser)]
#[command(name = "ember-generate", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// The flags of every command.
    #[command(flatten)]
    pub common: CommonArgs,
}

const EXAMPLES: &str = "\
Examples:
  ember-generate text                                  ask for prompts, and continue each
  ember-generate text \"Once upon a time\" --top-k 50    sample from the 50 best tokens
  ember-generate text --from runs/mine --format json   one JSON object for each text
  ember-generate explain \"Once upon a time\"            how the text is generated, in one HTML file
  ember-generate score \"How likely is this?\"           loss and perplexity of a text
  ember-generate score --choices questions.jsonl       how often the right choice is preferred
  ember-generate convert --to gguf --out mine.gguf     the newest run, as a file for llama.cpp
  ember-generate serve                                 answer over HTTP, as OpenAI's API does

RUN is a run folder (its best checkpoint, else its latest), a checkpoint folder, a Hugging Face folder of a GPT-2, Llama \
or Qwen3, or a model file of llama.cpp (.gguf), nanoGPT (ckpt.pt) or llama2.c (.bin). \
By default it is the newest run under runs/.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue prompts
    Text(Box<text_args::TextArgs>),
    /// Show how a text is generated, step by step: in one HTML file with every number, or on the
    /// terminal
    Explain(explain::ExplainArgs),
    /// Repeat a traced run, and check that the same tokens come
    Replay(replay::ReplayArgs),
    /// Measure how probable texts are: loss, perplexity, bits per byte; or answer multiple-choice
    /// questions
    Score(score::ScoreArgs),
    /// Serve models over HTTP, with OpenAI's and llama.cpp's APIs and a page to write with
    Serve(serve::ServeArgs),
    /// Convert a checkpoint to another program's format, such as llama.cpp's
    Convert(convert::ConvertArgs),
    /// Measure how fast a model reads and writes on this machine, compared with what its
    /// memory bandwidth allows
    Bench(bench::BenchArgs),
    /// List the devices that this program can compute on
    Devices,
    /// Write the completion script for a shell
    Completions(CompletionsArgs),
    /// Write this program's manual pages
    #[command(hide = true)]
    ManPages(ManPagesArgs),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// One line that names the file or flag at fault; [`ember_cli::program::UsageError`] for a
    /// wrong argument.
    pub fn run(&self, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
        match self {
            Self::Text(args) => text::run(args, common, interrupt),
            Self::Explain(args) => explain::run(args, common, interrupt),
            Self::Replay(args) => replay::run(args, common, interrupt),
            Self::Score(args) => score::run(args, common, interrupt),
            Self::Serve(args) => serve::run(args, common, interrupt),
            Self::Convert(args) => convert::run(args, common, interrupt),
            Self::Bench(args) => bench::run(args, common, interrupt),
            Self::Devices => devices::run(common),
            Self::Completions(args) => completions::run::<Cli>(args),
            Self::ManPages(args) => man_pages::run::<Cli>(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn examples_in_the_help_run() {
        let (tried, refused) = ember_cli::examples::tried(&Cli::command());
        assert!(tried >= 30 && refused.is_empty(), "{tried}: {refused:?}");
    }

    #[test]
    fn the_help_wraps_well() {
        assert_eq!(ember_cli::examples::badly_wrapped(&Cli::command()), [""; 0]);
    }
}
