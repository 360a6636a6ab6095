//! `ember-train prepare`: text to token files.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
use ember_cli::terminal;
use ember_cli::wording;
use ember_data::prepare::{Manifest, PrepareOptions};
use ember_data::source;
use ember_host::interrupt::Interrupt;
use ember_training::error::Error;
use ember_training::run::text;

use crate::progress_bar::Bar;

/// Arguments of `prepare`.
#[derive(Args, Debug)]
pub struct PrepareArgs {
    /// Text files, folders, .jsonl or .parquet (each also .gz or .zst), or - for standard input;
    /// none: the built-in stories
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
        inputs: text::inputs(&args.text, args.stories),
        field: args.field.clone(),
        tokenizer,
        val_fraction: args.val_fraction,
        seed: common.seed.unwrap_or(0),
        out: args.out.clone(),
        ..PrepareOptions::default()
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

/// Why a file in a folder is left out, with the flags that would change it.
fn describe(error: &source::Error) -> String {
    wording::line(error).0
}

/// Prepares with a progress bar; `None` when a signal interrupted it.
///
/// # Errors
/// As [`text::prepare`].
pub fn prepare_shown(options: &PrepareOptions, quiet: bool, interrupt: &Interrupt) -> Result<Option<Manifest>, Error> {
    let bar = Bar::new(quiet, interrupt);
    let prepared = text::prepare(&PrepareOptions { describe, ..options.clone() }, &bar);
    bar.finish();
    if matches!(prepared, Ok(None)) {
        Notes::new(quiet).say("interrupted: nothing was left half prepared; run the command again");
    }
    prepared
}
