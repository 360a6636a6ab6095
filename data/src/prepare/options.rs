//! The options of `prepare`, and the interface through which it reports progress.

use super::{error::Error, split::HoldOut};
use crate::{source, source::Clean, source::Input, source::Listing, source::ReadOptions, tokenizer::TokenizerChoice};
use ember_host::file_error::with_causes;
use std::{path::PathBuf, time::Duration};
use xxhash_rust::xxh3::Xxh3Default;

/// What to prepare, and how.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Where the text comes from, read in this order.
    pub inputs: Vec<Input>,
    /// How files are read.
    pub reading: ReadOptions,
    /// The tokenizer to use.
    pub tokenizer: TokenizerChoice,
    /// Fraction of the text held out for validation, in 0..1.
    pub val_fraction: f64,
    /// Which documents may validate.
    pub hold_out: HoldOut,
    /// Whether addresses, numbers and keys are replaced by tags ([`crate::sensitive`]).
    pub mask: bool,
    /// Seeds the choice of validation documents, and the built-in stories.
    pub seed: u64,
    /// The output folder.
    pub out: PathBuf,
    /// Interval between checkpoints, from which the same call can resume after an interruption;
    /// `None`: none are saved.
    pub keep_every: Option<Duration>,
    /// Describes in one line why a file in a folder is left out, for the report and the manifest.
    /// The default gives the error with its causes.
    pub describe: fn(&source::Error) -> String,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            reading: ReadOptions::default(),
            tokenizer: TokenizerChoice::Auto,
            val_fraction: 0.1,
            hold_out: HoldOut::Any,
            mask: false,
            seed: 0,
            out: PathBuf::from("data"),
            keep_every: None,
            describe: |error| with_causes(error),
        }
    }
}

impl PrepareOptions {
    /// Whether the text is only the built-in corpus, whose documents are never cut.
    pub(super) fn only_stories(&self) -> bool {
        matches!(self.inputs[..], [Input::Stories { .. }])
    }

    /// A hash of the request: the options, and the names, sizes and modification times of the
    /// files, without `out`, `keep_every` and `describe`.
    ///
    /// It identifies the request: progress of another one is not resumed from. The content of a
    /// tokenizer's file is not in it.
    ///
    /// # Errors
    /// As [`source::Listing::add_path`].
    pub fn fingerprint(&self) -> Result<String, source::Error> {
        let Self { inputs, reading, tokenizer, val_fraction, hold_out, mask, seed, out: _, keep_every: _, describe: _ } =
            self;
        let ReadOptions { field, encoding, clean } = reading;
        let mut hash = Xxh3Default::new();
        let mut add = |words: String| hash.update(words.as_bytes());
        add(format!("{field:?} {tokenizer} {val_fraction} {seed}"));
        // An option that was added later is hashed only where it is set, so that folders which were
        // prepared without it keep their fingerprints.
        if *hold_out != HoldOut::Any {
            add(format!(" {hold_out:?}"));
        }
        if *mask {
            add(" masked".to_owned());
        }
        if let Some(encoding) = encoding {
            add(format!(" {}", encoding.name()));
        }
        if *clean != Clean::default() {
            add(format!(" clean {clean}"));
        }
        for input in inputs {
            add(format!("\n{input:?}"));
            if let Input::Path(path) = input {
                let mut listing = Listing::new(reading);
                listing.add_path(path)?;
                for file in &listing.files {
                    let changed = std::fs::metadata(file.path()).and_then(|metadata| metadata.modified()).ok();
                    add(format!("\n{:?} {} {changed:?}", file.name, file.bytes));
                }
            }
        }
        Ok(format!("{:016x}", hash.digest()))
    }
}

/// Receives progress reports of a preparation, and can stop it.
pub trait Progress: Sync {
    /// `done_bytes` of `total_bytes` (if known) of `stage`, a few words such as "reading", are
    /// done.
    fn update(&self, stage: &str, done_bytes: u64, total_bytes: Option<u64>);

    /// A line about an event, such as an interrupted call being resumed.
    fn note(&self, _line: &str) {}

    /// Whether the user wants to stop; preparing then ends soon with [`Error::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// A [`Progress`] that ignores all reports.
pub struct Silent;

impl Progress for Silent {
    fn update(&self, _stage: &str, _done_bytes: u64, _total_bytes: Option<u64>) {}
}

/// Reports the progress of a stage; an error if the user wants to stop.
pub fn report_progress(progress: &dyn Progress, stage: &str, done: u64, total: Option<u64>) -> Result<(), Error> {
    progress.update(stage, done, total);
    if progress.interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}
