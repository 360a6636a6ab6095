//! A prepared folder: its manifest, and opening it, which succeeds only if it is complete and its
//! files are those that the manifest describes.

use super::{checkpoint::CHECKPOINT, encode::SplitCounts, reading::Source, report::Report};
use crate::ngrams::MAX_ORDER;
use crate::source::{LeftOut, own::MANIFEST, own::TOKEN_FILES, own::is_prepared};
use crate::{tokenizer, tokenizer::Tokenizer, tokens, tokens::TokenFile, windows::WindowRule};
use ember_host::{file_error::At, file_error::FileError, files::checksum, files::read_regular};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The version of the prepared folder's layout that this program writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// `manifest.json`, written last: a folder without it is unfinished.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the folder's layout ([`FORMAT_VERSION`]).
    pub format_version: u32,
    /// Where the text came from, in reading order.
    pub sources: Vec<Source>,
    /// Files in the text's folders that were not read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The tokenizer: `chars`, `bytes`, `bpe:N` or the file it was read from.
    pub tokenizer: String,
    /// Why that tokenizer was chosen, in a sentence.
    pub tokenizer_reason: String,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Id of `<|endoftext|>`, if the tokenizer has it.
    pub end_of_text: Option<u32>,
    /// Counts of `train.bin`.
    pub train: SplitCounts,
    /// Counts of `val.bin`.
    pub val: SplitCounts,
    /// A hash (64 bits, hexadecimal) of the held-out text, independent of the tokenizer; empty if
    /// an earlier version prepared the folder.
    #[serde(default)]
    pub held_out_checksum: String,
    /// xxh3 (64 bits, hexadecimal) of `tokenizer.json`.
    pub tokenizer_checksum: String,
    /// How validation text was chosen, in words.
    pub split_rule: String,
    /// Seed of that choice.
    pub seed: u64,
    /// Where windows may start.
    pub window_rule: WindowRule,
    /// [`super::PrepareOptions::fingerprint`] of the options.
    pub fingerprint: String,
    /// What was found in the text.
    pub report: Report,
    /// For the built-in corpus: the lowest loss that any model, and any model without memory, can
    /// reach on this validation split.
    pub marks: Option<Marks>,
    /// Losses of n-gram models on the held-out text ([`ngrams`](crate::ngrams::Losses::ngrams)).
    pub ngram_losses: [f64; MAX_ORDER],
    /// The same with a cache ([`trigram_cache`](crate::ngrams::Losses::trigram_cache)).
    pub trigram_cache_loss: f64,
}

impl Manifest {
    /// Converts a loss in nats per held-out token to bits per byte of the held-out text, which is
    /// comparable across tokenizers. The first token has no context, so neither it nor its text
    /// counts. `None` if the text has unknown tokens: their content would cost bits, too.
    pub fn bits_per_byte(&self, loss: f64) -> Option<f64> {
        let targets = self.val.tokens.saturating_sub(1);
        let bytes = self.val.bytes.saturating_sub(self.val.first_token_bytes);
        (bytes > 0 && self.val.unknown == 0).then(|| loss * targets as f64 / bytes as f64 / std::f64::consts::LN_2)
    }

    /// The loss of the best n-gram model on the held-out text, in nats per token.
    pub fn best_ngram_loss(&self) -> f64 {
        self.ngram_losses.into_iter().fold(f64::INFINITY, f64::min)
    }
}

/// Known losses on a validation split of the built-in corpus, in nats per validation target (a
/// token or its document's end).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// The source's own -ln P of the validation text: no model does better except by luck.
    pub entropy_floor: f64,
    /// The loss of the best predictor that knows the grammar but forgets earlier sentences.
    pub forgetful_loss: f64,
}

/// A prepared folder, complete, with the files that its manifest describes.
pub struct Dataset {
    /// The folder's description of itself.
    pub manifest: Manifest,
    /// Training tokens.
    pub train: TokenFile,
    /// Validation tokens.
    pub val: TokenFile,
    /// The tokenizer that made the tokens.
    pub tokenizer: Tokenizer,
}

/// Why a prepared folder does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages explain the fields
pub enum OpenError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A token file is missing or damaged.
    #[error(transparent)]
    Tokens(#[from] tokens::Error),
    /// The tokenizer is missing or damaged.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// The manifest cannot be parsed.
    #[error("{path} is damaged; prepare the text again")]
    Manifest { path: PathBuf, source: serde_json::Error },
    /// There is no prepared folder, or its files do not belong together.
    #[error("{path} {what}")]
    Unusable { path: PathBuf, what: String },
}

impl OpenError {
    fn unusable(path: &Path, what: impl Into<String>) -> Self {
        Self::Unusable { path: path.to_owned(), what: what.into() }
    }

    fn mismatch(path: &Path) -> Self {
        Self::unusable(path, format!("does not belong to the {MANIFEST} beside it; prepare the text again"))
    }
}

impl Dataset {
    /// Whether a text was, or began to be, prepared into this folder. [`Self::open`] checks whether
    /// it is complete and undamaged.
    pub fn is_in(dir: &Path) -> bool {
        is_prepared(dir) || dir.join(CHECKPOINT).is_dir()
    }

    /// Opens a prepared folder and checks every other file in it, checksums included, against the
    /// manifest. The manifest has no checksum of its own: if it can be parsed, it is trusted.
    ///
    /// # Errors
    /// They name the file that is missing, unfinished, damaged or of another version.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let manifest = read_manifest(dir)?;
        let [train, val] = TOKEN_FILES.map(|name| dir.join(name));
        let train = open_tokens(&train, &manifest.train, &manifest)?;
        let val = open_tokens(&val, &manifest.val, &manifest)?;
        let path = dir.join("tokenizer.json");
        if format!("{:016x}", checksum(&path)?) != manifest.tokenizer_checksum {
            let what = "is not the tokenizer that the tokens were made with; prepare the text again";
            return Err(OpenError::unusable(&path, what));
        }
        let tokenizer = Tokenizer::from_file(&path)?;
        if tokenizer.vocab_size() != manifest.vocab_size {
            return Err(OpenError::mismatch(&path));
        }
        // The end-of-text token may be named in the config file only.
        if tokenizer.end_of_text() != manifest.end_of_text {
            return Err(OpenError::mismatch(&dir.join("tokenizer_config.json")));
        }
        Ok(Self { manifest, train, val, tokenizer })
    }
}

fn read_manifest(dir: &Path) -> Result<Manifest, OpenError> {
    let path = dir.join(MANIFEST);
    if !dir.is_dir() {
        return Err(OpenError::unusable(dir, "is not a folder; prepare a text into it first"));
    }
    if !path.exists() {
        let why = "it was never prepared, or preparing did not finish; prepare the text again";
        return Err(OpenError::unusable(dir, format!("has no {MANIFEST}: {why}")));
    }
    let content = read_regular(&path).at("cannot read", &path)?;
    let damaged = |source| OpenError::Manifest { path: path.clone(), source };
    let value: Value = serde_json::from_slice(&content).map_err(damaged)?;
    let version = value["format_version"].as_u64().unwrap_or(0);
    if version != u64::from(FORMAT_VERSION) {
        let what = format!("has format version {version}, this program reads {FORMAT_VERSION}; prepare the text again");
        return Err(OpenError::unusable(&path, what));
    }
    serde_json::from_value(value).map_err(damaged)
}

fn open_tokens(path: &Path, split: &SplitCounts, manifest: &Manifest) -> Result<TokenFile, OpenError> {
    let tokens = TokenFile::open(path)?;
    let is_its = tokens.len() as u64 == split.tokens
        && tokens.vocab_size == manifest.vocab_size
        && format!("{:016x}", tokens.checksum) == split.checksum;
    if !is_its {
        return Err(OpenError::mismatch(path));
    }
    tokens.verify()?;
    Ok(tokens)
}
