//! `ember-train prepare`: text to token files.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use ember_cli::terminal;
use ember_cli::wording;
use ember_data::prepare::{self, Input, Manifest, PrepareOptions, prepare};
use ember_data::source;
use ember_host::interrupt::Interrupt;

use super::progress_bar::Bar;
use crate::cli::PrepareArgs;
use ember_training::config::DataConfig;

/// Runs the command.
///
/// # Errors
/// When the text cannot be read or the folder cannot be written.
pub fn run(args: &PrepareArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if !(args.val_fraction > 0.0 && args.val_fraction < 1.0) {
        return Err(
            UsageError::new(format!("--val-fraction {}: it must be above 0 and below 1", args.val_fraction)).into()
        );
    }
    let tokenizer =
        args.tokenizer.parse().map_err(|error| UsageError::new(format!("--tokenizer {}: {error}", args.tokenizer)))?;
    let options = PrepareOptions {
        inputs: inputs(&args.text, args.stories),
        field: args.field.clone(),
        tokenizer,
        val_fraction: args.val_fraction,
        seed: common.seed.unwrap_or(0),
        out: args.out.clone(),
        describe,
    };
    let Some(manifest) = prepare_shown(&options, common.quiet, interrupt)? else { return Ok(Outcome::Interrupted) };
    let mut out = terminal::stdout();
    match common.format {
        OutputFormat::Json => writeln!(out, "{}", serde_json::to_string(&manifest)?),
        OutputFormat::Text => writeln!(
            out,
            "{}\n{} is ready: train on it with `ember-train run {0}`",
            manifest.report,
            args.out.display()
        ),
    }
    .context("cannot write to standard output")?;
    Ok(Outcome::Done)
}

/// Preparing what a configuration names, into the folder `out`.
///
/// # Errors
/// When it names no tokenizer that there is.
pub fn options(data: &DataConfig, out: PathBuf) -> Result<PrepareOptions, UsageError> {
    let tokenizer =
        data.tokenizer.parse().map_err(|error| UsageError::new(format!("tokenizer {}: {error}", data.tokenizer)))?;
    Ok(PrepareOptions {
        inputs: inputs(&data.text, data.stories),
        field: data.field.clone(),
        tokenizer,
        val_fraction: data.val_fraction,
        seed: data.seed,
        out,
        describe,
    })
}

/// Why a file in a folder is left out, with the flags that would change it.
fn describe(error: &source::Error) -> String {
    wording::line(error).0
}

/// What the command line's TEXT means: `-` is standard input, nothing is the built-in corpus.
fn inputs(text: &[String], stories: u64) -> Vec<Input> {
    if text.is_empty() {
        return vec![Input::Stories { count: stories }];
    }
    let input = |path: &String| if path == "-" { Input::Stdin } else { Input::Path(path.into()) };
    text.iter().map(input).collect()
}

/// Prepares with a progress bar; `None` when a signal interrupted it.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_shown(options: &PrepareOptions, quiet: bool, interrupt: &Interrupt) -> Result<Option<Manifest>> {
    let bar = Bar::new(quiet, interrupt);
    let result = prepare(options, &bar);
    bar.finish();
    match result {
        Err(prepare::Error::Interrupted) => {
            Notes::new(quiet).say("interrupted: nothing was left half prepared; run the command again");
            Ok(None)
        }
        other => Ok(Some(other?)),
    }
}
