//! From text to a folder of tokens that training reads.
//!
//! The text is read twice, never held. The first reading finds what is in it, learns the tokenizer
//! where one is to be learnt and decides which text validates; the second encodes. Characters are
//! those of all of the text; byte pair encoding is learnt from what teaches alone (a sample of at
//! most 32 MiB spread over it).
//!
//! The folder holds `train.bin` and `val.bin` ([`crate::tokens`]), `tokenizer.json` and
//! `tokenizer_config.json`, and `manifest.json`, which is written last: without it the folder is
//! unfinished, and with it every file can be checked.

mod ahead;
mod blanks;
mod checkpoint;
pub(crate) mod corpus;
mod dataset;
mod diff;
mod duplicates;
mod encode;
mod error;
mod excerpt;
mod options;
pub(crate) mod position;
mod report;
pub(crate) mod sample;
mod split;
mod survey;

pub use crate::source::{Input, LeftOut, LeftOutKind};
pub use checkpoint::{CHECKPOINT, is_begun};
pub use corpus::Source;
pub use dataset::{Dataset, FORMAT_VERSION, Manifest, Marks, OpenError};
pub use diff::diff;
pub use duplicates::{Duplicates, NearDuplicateCounts};
pub use encode::SplitCounts;
pub use error::Error;
pub use excerpt::{Excerpt, excerpt};
pub use options::{PrepareOptions, Progress, Silent};
pub use report::{RareCharacters, Report};
pub use split::HoldOut;

use crate::tokenizer::{self, Tokenizer, TokenizerChoice};
use crate::tokens::TokenFile;
use crate::{leakage::leakage, ngrams, numbers::counted};
use crate::{source::left_out::MANIFEST, source::left_out::is_prepared, stories, stories::story, windows::WindowRule};
use checkpoint::Checkpoint;
use corpus::Corpus;
use ember_host::files::{checksum, make_folder, remove_unfinished, sync_folder, write_atomic};
use ember_host::{file_error::At, file_error::FileError};
use encode::{Encoded, TOKEN_FILES, encode};
use options::tell;
use rayon::prelude::*;
use split::Side;
use std::fs::{File, TryLockError};
use std::{collections::BTreeSet, io, path::Path};
use survey::{Survey, survey};

/// What [`Tokenizer::save`] writes.
const TOKENIZER_FILES: [&str; 2] = ["tokenizer.json", "tokenizer_config.json"];

/// A text with more different characters than this is not encoded by characters unless asked for.
const MOST_CHARACTERS: usize = 256;

/// Nor is one of so many bytes: it is enough to learn the frequent parts of words from, by which a
/// model reads twice as far with every step.
const ENOUGH_BYTES: u64 = 50_000;

/// The vocabularies of tokenizers that nobody asked for.
const VOCAB_SIZES: std::ops::RangeInclusive<u64> = 512..=8192;

/// A token for each so many bytes, so that all are seen often (`bench/LEARNING.md`).
const BYTES_A_TOKEN: u64 = 1000;

/// Byte pair encoding for a text of so many bytes and different characters: the power of two next
/// to what the bytes can teach, and room for every character where there are many.
fn bpe_for(bytes: u64, characters: usize) -> TokenizerChoice {
    let of_bytes = 2f64.powf(((bytes / BYTES_A_TOKEN).max(1) as f64).log2().round()) as u64;
    let of_characters = if characters > MOST_CHARACTERS { 2 * characters as u64 } else { 0 };
    let wanted = of_bytes.max(of_characters).next_power_of_two();
    TokenizerChoice::Bpe { vocab_size: wanted.clamp(*VOCAB_SIZES.start(), *VOCAB_SIZES.end()) as usize }
}

/// Turns text into `train.bin`, `val.bin`, `tokenizer.json`, `tokenizer_config.json` and, last,
/// `manifest.json` in `options.out`, which is created where it does not exist.
///
/// A folder that holds anything else than what was prepared into it before is refused: nothing
/// foreign is ever overwritten.
///
/// # Errors
/// They name what is wrong with which input; [`Error::Interrupted`] when `progress` says so. What was
/// prepared into the folder before stays there whole until what is new is.
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
    let _claim = make(out)?;
    let mut checkpoint = Checkpoint::open(options, &fingerprint, progress)?;
    let was_begun = checkpoint.is_begun();
    let prepared = prepare_into(options, fingerprint, &mut checkpoint, progress);
    checkpoint.close(&prepared)?;
    if (is_new || was_begun) && prepared.is_err() {
        let _ = std::fs::remove_dir(out); // which fails where something is left
    }
    prepared
}

/// The same, into a folder that is there and ours alone.
fn prepare_into(
    options: &PrepareOptions,
    fingerprint: String,
    checkpoint: &mut Checkpoint,
    progress: &dyn Progress,
) -> Result<Manifest, Error> {
    let out = &options.out;
    if let Some(manifest) = finished(checkpoint) {
        progress.note(&format!("{} was begun before: its files only had to be put in their place", out.display()));
        replace_prepared(out, checkpoint)?;
        return Ok(manifest);
    }
    let mut corpus = Corpus::find(options)?;
    let only_stories = options.only_stories();
    let survey = survey(&mut corpus, checkpoint, progress)?;
    let (mut tokenizer, choice, tokenizer_reason) = make_tokenizer(options, &survey, progress)?;
    if only_stories {
        // Every window of the stories begins a document, so a prompt must too.
        tokenizer = tokenizer.opening_prompts()?;
    }
    let encoded = encode(&corpus, &survey, &tokenizer, checkpoint, progress)
        .map_err(|error| count_unknown(error, &survey, &tokenizer))?;
    if (encoded.documents, encoded.bytes) != (survey.documents, survey.bytes) {
        return Err(Error::changed(""));
    }
    tell(progress, "counting n-grams", 0, None)?;
    let [train, val] = TOKEN_FILES.map(|name| TokenFile::open(&checkpoint.file(name)));
    let (train, val) = (train?, val?);
    let ngram_losses = Some(ngrams::losses(&train, &val)?);
    tell(progress, "measuring leakage", 0, None)?;
    let bytes_per_token = survey.bytes as f64 / (train.len() + val.len()) as f64;
    let leakage = leakage(&train, &val, tokenizer.end_of_text(), bytes_per_token)?;
    let marks = only_stories.then(|| marks(&survey, &encoded, options.seed));
    tokenizer.save(checkpoint.folder())?;
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        tokenizer: choice.to_string(),
        tokenizer_reason,
        vocab_size: tokenizer.vocab_size(),
        end_of_text: tokenizer.end_of_text(),
        tokenizer_checksum: format!("{:016x}", checksum(&checkpoint.file("tokenizer.json"))?),
        split_rule: survey.split.rule.clone(),
        seed: options.seed,
        window_rule: if only_stories { WindowRule::DocumentStart } else { WindowRule::Anywhere },
        fingerprint,
        report: Report::new(&survey, &encoded, &corpus, &tokenizer, leakage),
        marks,
        ngram_losses,
        left_out: corpus.listing.left_out.clone(),
        sources: survey.sources,
        train: encoded.train,
        val: encoded.val,
    };
    write_atomic(&checkpoint.file(MANIFEST), |file| Ok(serde_json::to_writer_pretty(file, &manifest)?))?;
    replace_prepared(out, checkpoint)?;
    Ok(manifest)
}

/// What an earlier call has prepared but for the place of its files: it was killed in between.
fn finished(checkpoint: &Checkpoint) -> Option<Manifest> {
    serde_json::from_slice(&std::fs::read(checkpoint.file(MANIFEST)).ok()?).ok()
}

/// Refuses a folder with anything in it, unless a text was prepared into it or began to be. Names
/// with a leading dot do not count: what a killed run left, and what a desktop puts into every
/// folder.
fn ensure_ours(out: &Path) -> Result<(), Error> {
    let Ok(entries) = std::fs::read_dir(out) else { return Ok(()) }; // nothing there, or no folder: making it will tell
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.filter(|name| !name.starts_with('.')).min() {
        Some(file) if !is_prepared(out) => Err(Error::unusable(format!(
            "{} holds other files, {file} among them, and they might be overwritten; name a folder that is new or empty",
            out.display()
        ))),
        _ => Ok(()),
    }
}

/// Makes the folder, and removes what a killed run left behind in it. As long as the file that comes
/// back is held, no other process prepares into the folder.
fn make(out: &Path) -> Result<Option<File>, Error> {
    let cannot_write = "cannot write into the folder";
    make_folder(out).at(cannot_write, out)?;
    ensure_ours(out)?; // again: what `new/..` names is there only now
    let claim = claim(out)?;
    remove_unfinished(out).at(cannot_write, out)?;
    Ok(claim)
}

/// Locks the folder itself, so that no file for it lies there afterwards. Where folders cannot be
/// opened (Windows) or locked (some network disks), two processes are the user's to keep apart.
fn claim(out: &Path) -> Result<Option<File>, Error> {
    let Ok(folder) = File::open(out) else { return Ok(None) };
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::unusable(format!(
            "another process prepares a text into {}; wait until it has ended, or name another folder",
            out.display()
        ))),
        _ => Ok(Some(folder)),
    }
}

/// Puts what lies whole in the checkpoint in the place of what was prepared before, as far as that
/// was not done yet. Without its manifest, which goes first and comes back last, the folder is
/// unfinished.
fn replace_prepared(out: &Path, checkpoint: &Checkpoint) -> Result<(), FileError> {
    let replace = || -> io::Result<()> {
        match std::fs::remove_file(out.join(MANIFEST)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => sync_folder(out)?,
        }
        let put = |name| std::fs::rename(checkpoint.file(name), out.join(name));
        let files = [TOKEN_FILES, TOKENIZER_FILES].concat();
        files.into_iter().filter(|name| checkpoint.file(name).exists()).try_for_each(put)?;
        sync_folder(out)?;
        put(MANIFEST)?;
        sync_folder(out)
    };
    replace().at("cannot write into the folder", out)
}

/// The tokenizer, what it was resolved to, and why.
fn make_tokenizer(
    options: &PrepareOptions,
    survey: &Survey,
    progress: &dyn Progress,
) -> Result<(Tokenizer, TokenizerChoice, String), Error> {
    let (choice, reason) = match &options.tokenizer {
        TokenizerChoice::Auto => choose(&options.inputs, survey),
        choice => (choice.clone(), "as asked for".to_owned()),
    };
    let tokenizer = match &choice {
        TokenizerChoice::Chars => {
            let alphabet: BTreeSet<char> = survey.characters.keys().copied().collect();
            Tokenizer::chars(&alphabet, survey.documents > 1)?
        }
        TokenizerChoice::Bytes => Tokenizer::bytes()?,
        TokenizerChoice::Bpe { vocab_size } => {
            tell(progress, "learning the tokenizer", 0, Some(survey.sample.bytes as u64))?;
            Tokenizer::train_bpe(*vocab_size, survey.sample.teaching(&survey.split))?
        }
        TokenizerChoice::File(path) => Tokenizer::from_file(path)?,
        TokenizerChoice::Auto => unreachable!("it was resolved above"),
    };
    Ok((tokenizer, choice, reason))
}

/// Says of the whole text what the tokenizer does not know in it, where a first such character has
/// stopped the encoding.
fn count_unknown(error: Error, survey: &Survey, tokenizer: &Tokenizer) -> Error {
    const NAMED: usize = 8;
    let source = match error {
        Error::Tokenizer(tokenizer::Error::UnknownCharacter(first)) => first,
        other => return other,
    };
    let is_unknown = |character: char| tokenizer.encode(character.encode_utf8(&mut [0; 4])).is_err();
    let mut unknown: Vec<_> = survey.characters.iter().filter(|(character, _)| is_unknown(**character)).collect();
    unknown.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let all = unknown.iter().map(|(_, count)| *count).sum();
    let named = unknown.iter().take(NAMED).map(|(character, count)| match count {
        1 => format!("{character:?} once"),
        _ => format!("{character:?} {count} times"),
    });
    let named: Vec<String> = named.collect();
    let more = if unknown.len() > NAMED { ", ..." } else { "" };
    Error::UnknownCharacters { different: unknown.len(), all, examples: named.join(", ") + more, source }
}

/// What `auto` means for this text.
fn choose(inputs: &[Input], survey: &Survey) -> (TokenizerChoice, String) {
    let (characters, bytes) = (survey.characters.len(), survey.bytes);
    if inputs.iter().all(|input| matches!(input, Input::Stories { .. })) {
        (stories::TOKENIZER, "every word of the built-in stories becomes one token".to_owned())
    } else if characters <= MOST_CHARACTERS && bytes < ENOUGH_BYTES {
        let different = counted(characters, "different character");
        let reason = format!("{different}, and too little text to learn parts of words from");
        (TokenizerChoice::Chars, reason)
    } else {
        (bpe_for(bytes, characters), "each token occurs often enough to be learnt".to_owned())
    }
}

/// What the built-in corpus itself and its best forgetful predictor lose on the validation stories.
fn marks(survey: &Survey, encoded: &Encoded, seed: u64) -> Marks {
    let validates = |&number: &u64| survey.split.side(number) == Side::Val;
    let stories = (0..survey.documents).into_par_iter().filter(validates).map(|number| story(seed, number));
    // In order, so that the sums of floats are the same in every run.
    let prices: Vec<_> = stories.map(|story| (story.nats, story.forgetful_nats)).collect();
    let (nats, forgetful_nats) = prices.into_iter().fold((0.0, 0.0), |sum, nats| (sum.0 + nats.0, sum.1 + nats.1));
    // Every token but the first is a target: those of each story and the <|endoftext|> after it.
    let targets = (encoded.val.tokens - 1) as f64;
    Marks { entropy_floor: nats / targets, forgetful_loss: forgetful_nats / targets }
}

#[cfg(test)]
mod tests;
