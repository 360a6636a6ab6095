//! What the caller of `prepare` says and hears: how a text is to be prepared, and how far it is.

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
    /// What is wanted of the reading of files.
    pub reading: ReadOptions,
    /// How text becomes tokens.
    pub tokenizer: TokenizerChoice,
    /// The share of the text kept for validation, in 0..1.
    pub val_fraction: f64,
    /// Which documents may validate.
    pub hold_out: HoldOut,
    /// Whether tags stand in the place of addresses, numbers and keys ([`crate::sensitive`]).
    pub mask: bool,
    /// Chooses the validation documents, and the built-in stories.
    pub seed: u64,
    /// The folder to write.
    pub out: PathBuf,
    /// How often what is done is kept in that folder, for the same call to go on with after an
    /// interruption; `None`: never.
    pub keep_every: Option<Duration>,
    /// Says in a line why a file in a folder is left out, for the report and the manifest: the
    /// error with its causes, or what the caller would rather have its users read.
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
    /// Whether the text is the built-in corpus and nothing else, whose documents stay whole.
    pub(super) fn only_stories(&self) -> bool {
        matches!(self.inputs[..], [Input::Stories { .. }])
    }

    /// A name for what was asked for: the options, and the names, sizes and times of the files;
    /// `out` and `keep_every` are no part of it.
    ///
    /// A prepared folder whose manifest holds the same fingerprint need not be prepared again.
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

/// Hears how far preparing has come, and can stop it.
pub trait Progress: Sync {
    /// `done_bytes` of `total_bytes` (where known) of `stage`, a few words such as "reading", are
    /// done.
    fn update(&self, stage: &str, done_bytes: u64, total_bytes: Option<u64>);

    /// Says a line about what is done, such as that an interrupted call is gone on with.
    fn note(&self, _line: &str) {}

    /// Whether the user wants to stop; preparing then ends soon with [`Error::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// A [`Progress`] that nobody watches.
pub struct Silent;

impl Progress for Silent {
    fn update(&self, _stage: &str, _done_bytes: u64, _total_bytes: Option<u64>) {}
}

/// Tells how far a stage has come; an error when the user wants to stop.
pub fn tell(progress: &dyn Progress, stage: &str, done_bytes: u64, total_bytes: Option<u64>) -> Result<(), Error> {
    progress.update(stage, done_bytes, total_bytes);
    if progress.interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}
