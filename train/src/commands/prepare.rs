//! `ember-train prepare`: turns text into token files.

use clap::ValueEnum;
use ember_cli::wording;
use ember_data::prepare::{HoldOut, Manifest, PrepareOptions, diff, is_begun};
use ember_training::config::{ConfigError, Settings};
use ember_training::{error::Error, run::text};
use std::{fmt::Display, time::Duration};

use super::reading::ReadingArgs;
use crate::prelude::*;
use crate::progress_bar::Bar;

/// Arguments of `prepare`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train prepare my-writing/ --out data/mine               then: ember-train run data/mine
  ember-train prepare books/ mails.mbox --out data/all --tokenizer bpe:8192 --clean all
  ember-train prepare questions.jsonl --field answer --val-fraction 0.1 --out data/answers")]
pub struct PrepareArgs {
    /// Files, folders or archives: text, Word, PDF, e-books, web pages, mail, chats, tables and more
    /// (docs/texts.md), each also .gz or .zst; or - for standard input; none: the built-in stories
    pub text: Vec<String>,
    /// Folder to write
    #[arg(long, value_name = "DIR", required_unless_present = "diff", value_parser = output_file::folder())]
    pub out: Option<PathBuf>,
    /// Show what cleaning changes in the documents, and write nothing
    #[arg(long, conflicts_with_all = ["out", "mask"])]
    pub diff: bool,
    /// auto, chars, bytes, bpe:SIZE, or a tokenizer.json
    #[arg(long, default_value = "auto", value_name = "TOKENIZER")]
    pub tokenizer: String,
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Share of the text kept for validation
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    pub val_fraction: f64,
    /// Documents held out for validation: any (at random), or the last of each file, for mails and
    /// chats
    #[arg(long, value_enum, default_value_t = HoldOutArg::Any)]
    pub hold_out: HoldOutArg,
    /// Replace e-mail addresses, telephone numbers, keys, card numbers and IBANs by tags
    #[arg(long)]
    pub mask: bool,
    /// Seconds between saves of the progress, from which the same command continues after an
    /// interruption
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub keep_every: f64,
    /// Number of built-in stories, if no text is given
    #[arg(long, default_value_t = 100_000, value_name = "N", conflicts_with = "text")]
    pub stories: u64,
}

/// [`HoldOut`] as a flag's value.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[allow(missing_docs)] // the same words
pub enum HoldOutArg {
    Any,
    Last,
}

impl From<HoldOutArg> for HoldOut {
    fn from(value: HoldOutArg) -> Self {
        match value {
            HoldOutArg::Any => Self::Any,
            HoldOutArg::Last => Self::Last,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When the text cannot be read or the folder cannot be written.
pub fn run(args: &PrepareArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    ensure!(
        !args.diff || common.format == OutputFormat::Text,
        UsageError::new("--diff shows a text for people; drop --format json")
    );
    check_as_key("val_fraction", args.val_fraction)?;
    check_as_key("stories", args.stories)?;
    let tokenizer =
        args.tokenizer.parse().map_err(|error| UsageError::new(format!("--tokenizer {}: {error}", args.tokenizer)))?;
    let keep_every = Duration::try_from_secs_f64(args.keep_every)
        .map_err(|_| UsageError::new(format!("--keep-every {}: give seconds, such as 10", args.keep_every)))?;
    let options = PrepareOptions {
        inputs: text::inputs(&args.text, args.stories),
        reading: args.reading.options()?,
        tokenizer,
        val_fraction: args.val_fraction,
        hold_out: args.hold_out.into(),
        mask: args.mask,
        seed: common.seed.unwrap_or(0),
        out: args.out.clone().unwrap_or_default(),
        keep_every: Some(keep_every),
        ..PrepareOptions::default()
    };
    if args.diff {
        let mut shown = Ok(());
        diff(&options, &mut |changed| {
            if shown.is_ok() {
                shown = show(changed);
            }
        })?;
        return shown.map(|()| Outcome::Done);
    }
    let Some(manifest) = prepare_shown(&options, common.quiet, interrupt)? else { return Ok(Outcome::Interrupted) };
    let (report, out) = (&manifest.report, &options.out);
    let ready = format!("{} is ready: train on it with `ember-train run {}`", out.display(), typed(out));
    let text = || format!("{report}\n{ready}\n");
    answer(common, text, || json_line(&manifest))
}

/// Refuses a flag's value that the configuration key of the same name does not allow, so that `run`
/// can train on the prepared text.
fn check_as_key(key: &str, value: impl Display) -> Result<()> {
    match Settings::default().set(&format!("{key}={value}")) {
        Err(ConfigError::NotAllowed { takes, .. }) => {
            let flag = key.replace('_', "-");
            bail!(UsageError::new(format!("--{flag} {value} is not allowed; use {takes}")))
        }
        set => Ok(set?),
    }
}

/// Printed when an interruption leaves nothing that the next call could continue.
pub const NOTHING_DONE: &str = "interrupted: no partial results remain; run the command again";

/// Prepares with a progress bar; `None` when a signal interrupted it.
///
/// # Errors
/// As [`text::prepare`].
pub fn prepare_shown(options: &PrepareOptions, quiet: bool, interrupt: &Interrupt) -> Result<Option<Manifest>, Error> {
    let bar = Bar::new(quiet, interrupt);
    // Reports a file that is left out of a folder with the flags that would change that.
    let options = PrepareOptions { describe: |error| wording::line(error).words(), ..options.clone() };
    let prepared = text::prepare(&options, &bar);
    bar.finish();
    if matches!(prepared, Ok(None)) && !is_begun(&options.out) {
        Notes::new(quiet).say(NOTHING_DONE);
    }
    prepared
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: PrepareArgs,
    }

    #[test]
    fn what_cleaning_changes_is_shown_without_masks() {
        let shows = |line: &str| Line::try_parse_from(line.split(' ')).is_ok_and(|line| line.args.diff);
        assert!(shows("prepare a.txt --diff"));
        assert!(!shows("prepare a.txt --diff --mask"));
    }
}
