//! A prepared folder, opened only when whole and undamaged.

use super::{FORMAT_VERSION, MANIFEST, Manifest, Split, is_prepared};
use crate::tokenizer::Tokenizer;
use crate::tokens::TokenFile;
use anyhow::{Context, Result, ensure};
use ember_host::files::checksum;
use serde_json::Value;
use std::path::Path;

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
    /// Whether a text was prepared into this folder, or began to be; whether it is whole and undamaged, [`Self::open`] says.
    pub fn is_in(dir: &Path) -> bool {
        is_prepared(dir)
    }

    /// Opens a prepared folder and checks every file in it, checksums included, against the manifest.
    ///
    /// Errors name the file that is missing, unfinished, damaged or of another version.
    pub fn open(dir: &Path) -> Result<Self> {
        let manifest = read_manifest(dir)?;
        let train = open_tokens(&dir.join("train.bin"), &manifest.train, &manifest)?;
        let val = open_tokens(&dir.join("val.bin"), &manifest.val, &manifest)?;
        let path = dir.join("tokenizer.json");
        ensure!(
            format!("{:016x}", checksum(&path)?) == manifest.tokenizer_checksum,
            "{} is not the tokenizer that the tokens were made with; prepare the text again",
            path.display()
        );
        let tokenizer = Tokenizer::from_file(&path)?;
        ensure!(
            tokenizer.vocab_size() == manifest.vocab_size
                && manifest.end_of_text.is_none_or(|end| (end as usize) < manifest.vocab_size),
            "{} does not belong to the {MANIFEST} beside it; prepare the text again",
            path.display()
        );
        Ok(Self { manifest, train, val, tokenizer })
    }
}

fn read_manifest(dir: &Path) -> Result<Manifest> {
    let path = dir.join(MANIFEST);
    ensure!(dir.is_dir(), "{} is not a folder; prepare a text into it first", dir.display());
    ensure!(
        path.exists(),
        "{} has no {MANIFEST}: it was never prepared, or preparing did not finish; prepare the text again",
        dir.display()
    );
    let damaged = || format!("{} is damaged; prepare the text again", path.display());
    let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let value: Value = serde_json::from_slice(&content).with_context(damaged)?;
    let version = value["format_version"].as_u64().unwrap_or(0);
    ensure!(
        version == u64::from(FORMAT_VERSION),
        "{} has format version {version}, this program reads {FORMAT_VERSION}; prepare the text again",
        path.display()
    );
    serde_json::from_value(value).with_context(damaged)
}

fn open_tokens(path: &Path, split: &Split, manifest: &Manifest) -> Result<TokenFile> {
    let tokens = TokenFile::open(path)?;
    ensure!(
        tokens.len() as u64 == split.tokens
            && tokens.vocab_size() == manifest.vocab_size
            && format!("{:016x}", tokens.checksum()) == split.checksum,
        "{} does not belong to the {MANIFEST} beside it; prepare the text again",
        path.display()
    );
    tokens.verify()?;
    Ok(tokens)
}
