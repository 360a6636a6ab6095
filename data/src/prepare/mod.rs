//! From text to a folder of tokens that training reads.

mod manifest;
mod report;

pub use manifest::{FORMAT_VERSION, Manifest, Marks, Source, Split};
pub use report::Report;

use crate::tokenizer::{Tokenizer, TokenizerChoice};
use crate::tokens::TokenFile;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// One place that text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file, or a folder with all files under it.
    Path(PathBuf),
    /// Standard input.
    Stdin,
    /// The built-in corpus.
    Stories {
        /// How many stories.
        count: u64,
    },
}

/// What to prepare, and how.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Where the text comes from, read in this order.
    pub inputs: Vec<Input>,
    /// The field of JSON Lines and the column of Parquet that holds the text.
    pub field: String,
    /// How text becomes tokens.
    pub tokenizer: TokenizerChoice,
    /// The share of the text kept for validation, in 0..1.
    pub val_fraction: f64,
    /// Chooses the validation documents, and the built-in stories.
    pub seed: u64,
    /// The folder to write.
    pub out: PathBuf,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            field: "text".to_owned(),
            tokenizer: TokenizerChoice::Auto,
            val_fraction: 0.1,
            seed: 0,
            out: PathBuf::from("data"),
        }
    }
}

impl PrepareOptions {
    /// A name for what was asked for: the options, and the names, sizes and times of the files; `out` is no part of it.
    ///
    /// A prepared folder whose manifest holds the same fingerprint need not be prepared again.
    pub fn fingerprint(&self) -> Result<String> {
        bail!("not built yet")
    }
}

/// Hears how far preparing has come, and can stop it.
pub trait Progress: Sync {
    /// `done_bytes` of `total_bytes` (where known) of `stage`, a few words such as "reading", are done.
    fn update(&self, stage: &str, done_bytes: u64, total_bytes: Option<u64>);

    /// Whether the user wants to stop; preparing then ends soon with the error [`Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// A [`Progress`] that nobody watches.
pub struct Silent;

impl Progress for Silent {
    fn update(&self, _stage: &str, _done_bytes: u64, _total_bytes: Option<u64>) {}
}

/// The error of a preparation that [`Progress::interrupted`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "interrupted while preparing the text; run the same command again to start over")
    }
}

impl std::error::Error for Interrupted {}

/// Turns text into `train.bin`, `val.bin`, `tokenizer.json`, `tokenizer_config.json` and, last, `manifest.json` in
/// `options.out`, which is created where it does not exist.
pub fn prepare(_options: &PrepareOptions, _progress: &dyn Progress) -> Result<Manifest> {
    bail!("not built yet")
}

/// A prepared folder, found whole and undamaged.
pub struct Dataset {
    /// What the folder says about itself.
    pub manifest: Manifest,
    /// Tokens to learn from.
    pub train: TokenFile,
    /// Tokens to measure on.
    pub val: TokenFile,
    /// How the text became tokens.
    pub tokenizer: Tokenizer,
}

impl Dataset {
    /// Opens a prepared folder and checks every file in it against the manifest.
    pub fn open(_dir: &Path) -> Result<Self> {
        bail!("not built yet")
    }
}
