//! Turns text into a folder of tokens for training.
//!
//! The text is read twice and never held in memory. The first pass surveys it, trains the tokenizer
//! if needed and chooses the validation text; the second pass encodes it. A character tokenizer
//! covers the characters of the whole text; byte pair encoding is trained on training text only (a
//! sample of at most 32 MiB spread over it).
//!
//! The folder holds `train.bin` and `val.bin` ([`crate::tokens`]), `tokenizer.json`,
//! `tokenizer_config.json`, and `manifest.json`, which is written last: a folder without it is
//! unfinished, and with it every file can be verified.

mod ahead;
mod character_counts;
mod checkpoint;
pub(crate) mod corpus;
mod dataset;
mod diff;
mod documents;
mod duplicates;
mod encode;
mod error;
mod excerpt;
mod folder;
mod options;
mod pipeline;
pub(crate) mod position;
pub(crate) mod reading;
pub(crate) mod report;
pub(crate) mod sample;
mod split;
mod survey;
mod text_tokenizer;

pub use crate::source::{Input, LeftOut, LeftOutKind};
pub use checkpoint::{CHECKPOINT, is_begun};
pub use dataset::{Dataset, FORMAT_VERSION, Manifest, Marks, OpenError};
pub use diff::diff;
pub use duplicates::{Duplicates, NearDuplicateCounts};
pub use encode::SplitCounts;
pub use error::Error;
pub use excerpt::{Excerpt, excerpt};
pub use options::{PrepareOptions, Progress, Silent};
pub use reading::Source;
pub use report::{RareCharacters, Report};
pub use split::HoldOut;

use crate::leakage::{Leakage, leakage};
use crate::ngrams::{self, Losses};
use crate::source::own::{MANIFEST, TOKEN_FILES};
use crate::{stories::story, tokens::TokenFile, windows::WindowRule};
use checkpoint::{Checkpoint, Record};
use corpus::Corpus;
use ember_host::files::{checksum, read_regular, write_atomic};
use encode::{Encoded, encode};
use folder::{ensure_ours, make_and_claim, replace_prepared};
use options::report_progress;
use rayon::prelude::*;
use split::Side;
use std::path::Path;
use survey::{Survey, survey};
use text_tokenizer::{count_unknown, make_tokenizer};

/// Turns text into `train.bin`, `val.bin`, `tokenizer.json`, `tokenizer_config.json` and, last,
/// `manifest.json` in `options.out`, which is created if needed.
///
/// Refuses a folder that holds anything but an earlier result: foreign files are never overwritten.
///
/// # Errors
/// They name the input and what is wrong with it; [`Error::Interrupted`] when `progress` says so.
/// An earlier result in the folder stays intact until the new one is complete.
pub fn prepare(options: &PrepareOptions, progress: &dyn Progress) -> Result<Manifest, Error> {
    let val_fraction = options.val_fraction;
    if !(val_fraction > 0.0 && val_fraction < 1.0) {
        let what = format!("val_fraction is {val_fraction}; give a share between 0 and 1, such as 0.1");
        return Err(Error::unusable(what));
    }
    if options.inputs.is_empty() {
        return Err(Error::unusable("no text was named; name a file, a folder, or standard input"));
    }
    let out = &options.out;
    ensure_ours(out)?;
    let fingerprint = options.fingerprint()?;
    let is_new = !out.exists();
    let _claim = make_and_claim(out)?;
    let mut checkpoint = Checkpoint::open(options, &fingerprint, progress)?;
    let was_begun = checkpoint.is_begun();
    let prepared = prepare_into(options, fingerprint, &mut checkpoint, progress);
    checkpoint.close(&prepared)?;
    if (is_new || was_begun) && prepared.is_err() {
        let _ = std::fs::remove_dir(out); // fails if the folder is not empty
    }
    prepared
}

/// As [`prepare`], into a folder that exists and is claimed.
fn prepare_into(
    options: &PrepareOptions,
    fingerprint: String,
    checkpoint: &mut Checkpoint,
    progress: &dyn Progress,
) -> Result<Manifest, Error> {
    let out = &options.out;
    if let Some(manifest) = finished(checkpoint) {
        progress.note(&format!(
            "the preparation of {} was interrupted at its end; moving the finished files into place",
            out.display()
        ));
        replace_prepared(out, checkpoint)?;
        return Ok(manifest);
    }
    if let Some(manifest) = in_place(out, &fingerprint, checkpoint) {
        return Ok(manifest);
    }
    let mut corpus = Corpus::find(options, progress)?;
    let only_stories = options.only_stories();
    let survey = survey(&mut corpus, checkpoint, progress)?;
    let (tokenizer, choice, tokenizer_reason) = make_tokenizer(options, &survey, progress)?;
    let encoded = encode(&corpus, &survey, &tokenizer, checkpoint, progress)
        .map_err(|error| count_unknown(error, &survey, &tokenizer))?;
    if (encoded.documents, encoded.bytes) != (survey.documents, survey.bytes) {
        return Err(Error::changed(""));
    }
    let (losses, leakage) = measure(checkpoint, survey.bytes, tokenizer.end_of_text(), progress)?;
    let marks = only_stories.then(|| marks(&survey, &encoded, options.seed));
    tokenizer.save(checkpoint.folder())?;
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        tokenizer: choice.to_string(),
        tokenizer_reason,
        vocab_size: tokenizer.vocab_size(),
        end_of_text: tokenizer.end_of_text(),
        held_out_checksum: encoded.held_out.shown(),
        tokenizer_checksum: format!("{:016x}", checksum(&checkpoint.file("tokenizer.json"))?),
        split_rule: survey.split.rule.clone(),
        seed: options.seed,
        window_rule: if only_stories { WindowRule::DocumentStart } else { WindowRule::Anywhere },
        fingerprint,
        report: Report::new(&survey, &encoded, &corpus, &tokenizer, leakage),
        marks,
        ngram_losses: losses.ngrams,
        trigram_cache_loss: losses.trigram_cache,
        left_out: corpus.listing.left_out.clone(),
        sources: survey.sources,
        train: encoded.train,
        val: encoded.val,
    };
    write_atomic(&checkpoint.file(MANIFEST), |file| Ok(serde_json::to_writer_pretty(file, &manifest)?))?;
    replace_prepared(out, checkpoint)?;
    Ok(manifest)
}

/// The manifest of an earlier call that was killed after preparing, before its files were in place.
fn finished(checkpoint: &Checkpoint) -> Option<Manifest> {
    read_manifest(&checkpoint.file(MANIFEST))
}

/// The manifest of an earlier call that was killed when its files were in place, before it removed
/// the checkpoint: no tokens are left there, though encoding had begun.
fn in_place(out: &Path, fingerprint: &str, checkpoint: &Checkpoint) -> Option<Manifest> {
    let were_moved = TOKEN_FILES.iter().all(|name| !checkpoint.file(name).exists());
    let manifest = read_manifest(&out.join(MANIFEST))?;
    (checkpoint.has(Record::Surveyed) && were_moved && manifest.fingerprint == fingerprint).then_some(manifest)
}

fn read_manifest(path: &Path) -> Option<Manifest> {
    serde_json::from_slice(&read_regular(path).ok()?).ok()
}

/// Measures the tokens of a text of `bytes` bytes: n-gram losses, and how much of the validation
/// text is also in training.
fn measure(
    checkpoint: &Checkpoint,
    bytes: u64,
    end_of_text: Option<u32>,
    progress: &dyn Progress,
) -> Result<(Losses, Leakage), Error> {
    report_progress(progress, "counting n-grams", 0, None)?;
    let [train, val] = TOKEN_FILES.map(|name| TokenFile::open(&checkpoint.file(name)));
    let (train, val) = (train?, val?);
    let losses = ngrams::losses(&train, &val)?;
    report_progress(progress, "measuring leakage", 0, None)?;
    let bytes_per_token = bytes as f64 / (train.len() + val.len()) as f64;
    Ok((losses, leakage(&train, &val, end_of_text, bytes_per_token)?))
}

/// Losses on the validation stories of the built-in corpus itself and of its best memoryless
/// predictor.
fn marks(survey: &Survey, encoded: &Encoded, seed: u64) -> Marks {
    let validates = |&number: &u64| survey.split.side(number) == Side::Val;
    let stories = (0..survey.documents).into_par_iter().filter(validates).map(|number| story(seed, number));
    // In order, so that floating-point sums are the same in every run.
    let prices: Vec<_> = stories.map(|story| (story.nats, story.forgetful_nats)).collect();
    let (nats, forgetful_nats) = prices.into_iter().fold((0.0, 0.0), |sum, nats| (sum.0 + nats.0, sum.1 + nats.1));
    // Every token but the first is a target: those of each story and the `<|endoftext|>` after it.
    let targets = (encoded.val.tokens - 1) as f64;
    Marks { entropy_floor: nats / targets, forgetful_loss: forgetful_nats / targets }
}

#[cfg(test)]
mod tests;
