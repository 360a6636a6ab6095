//! The text of a run: preparing it, finding its tokens, and cutting them into windows.

use std::path::{Path, PathBuf};

use ember_data::prepare::{self, Dataset, Input, Manifest, PrepareOptions, Progress};
use ember_data::source::ReadOptions;
use ember_data::tokenizer::{Tokenizer, TokenizerChoice};
use ember_data::windows::{TrainWindows, ValWindows};
use ember_decoding::run_folder;
use ember_host::file_error::At;
use ember_host::files::read_regular;

use super::checkpoint::text_of;
use super::folder::{CHECKPOINTS, CONFIG, DATA, RunFolder, run_of};
use crate::config::{ConfigError, DataConfig, Settings, TrainConfig};
use crate::error::{FolderError, Result, TextError};
use crate::step::progress::DataChecksums;

/// Prepares a text; `None` if [`Progress::interrupted`] returned true.
///
/// # Errors
/// As [`prepare::prepare`].
pub fn prepare(options: &PrepareOptions, progress: &dyn Progress) -> Result<Option<Manifest>> {
    match prepare::prepare(options, progress) {
        Err(prepare::Error::Interrupted) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// The options to prepare the text of a configuration into the folder `out`.
///
/// # Errors
/// When the tokenizer or the encoding is unknown.
pub fn options(data: &DataConfig, out: PathBuf) -> Result<PrepareOptions, ConfigError> {
    let tokenizer = &data.tokenizer;
    let unknown = |reason: String| ConfigError::Tokenizer { tokenizer: tokenizer.clone(), reason };
    let choice = tokenizer.parse::<TokenizerChoice>().map_err(|error| unknown(error.to_string()))?;
    let encoding = ReadOptions::encoding_of(&data.encoding).map_err(ConfigError::Encoding)?;
    Ok(PrepareOptions {
        inputs: inputs(&data.text, data.stories),
        reading: ReadOptions { field: data.field.clone(), encoding, clean: data.clean },
        tokenizer: choice,
        val_fraction: data.val_fraction,
        hold_out: data.hold_out,
        mask: data.mask,
        seed: data.seed,
        out,
        ..PrepareOptions::default()
    })
}

/// The inputs that the key `text` names: `-` is standard input, an empty list the built-in corpus.
pub fn inputs(text: &[String], stories: u64) -> Vec<Input> {
    if text.is_empty() {
        return vec![Input::Stories { count: stories }];
    }
    let input = |path: &String| if path == "-" { Input::Stdin } else { Input::Path(path.into()) };
    text.iter().map(input).collect()
}

/// The folder of prepared tokens, if the key `text` names one.
pub fn prepared(text: &[String]) -> Option<&Path> {
    let [only] = text else { return None };
    Some(Path::new(only)).filter(|folder| Dataset::is_in(folder))
}

/// The keys that decide how a text is prepared.
const PREPARING: [&str; 8] = ["tokenizer", "field", "encoding", "clean", "mask", "val_fraction", "hold_out", "stories"];

/// The keys that have no effect on the run in this folder, because the text that it reads was
/// prepared before it began.
pub(super) fn idle_keys(run: &Path, text: &[String]) -> &'static [&'static str] {
    let [name] = text else { return &[] };
    let (named, read) = (Path::new(name), data_folder(run, text));
    // The run's own folder may be the one that it names.
    let is_read = named.is_absolute()
        && named.canonicalize().is_ok_and(|named| read.canonicalize().is_ok_and(|read| read == named));
    if is_read { &PREPARING } else { &[] }
}

/// A line on set keys that have no effect because the text in `folder` is already prepared. Recipes
/// set such keys, so this is no error.
pub(super) fn ignored_keys(settings: &Settings, folder: &Path) -> Option<String> {
    // The tokenizer of an `init` was not set by the user; a different one is an error.
    let is_own = |key: &&str| settings.has(key) && (*key != "tokenizer" || settings.init().is_none());
    let set = PREPARING.into_iter().filter(is_own).collect::<Vec<_>>();
    (!set.is_empty())
        .then(|| format!("{} is already prepared, so these keys have no effect: {}", folder.display(), set.join(", ")))
}

/// The folder of a run's tokens: its own if there is one, otherwise the folder of prepared tokens
/// that its key `text` names, even if that is gone. Where both exist, its checkpoints may tell that
/// it has learned from the latter.
pub fn data_folder(run: &Path, text: &[String]) -> PathBuf {
    let own = run.join(DATA);
    let is_folder = |name: &str| Path::new(name).is_absolute() && !Path::new(name).is_file();
    match text {
        [name] if is_folder(name) && (!Dataset::is_in(&own) || has_learned(run, Path::new(name), &own)) => {
            PathBuf::from(name)
        }
        _ => own,
    }
}

/// Whether a run has learned from the tokens in `named`, the folder that its key `text` names, and
/// not from those in its `own` folder. Where both exist, its own are usually its text, and another
/// one was prepared in the place of its raw text. But earlier versions also began a run on prepared
/// tokens beside the data of a run that had not begun. Without a checkpoint its own count if they
/// are complete: a run begins only when they are.
fn has_learned(run: &Path, named: &Path, own: &Path) -> bool {
    let Some(named) = checksums(named) else { return false };
    let own = checksums(own);
    let saved = RunFolder::owned_elsewhere(run).saved();
    match saved.iter().find_map(|checkpoint| text_of(checkpoint)) {
        Some(learned) => learned == named && own != Some(learned),
        None => own.is_none(),
    }
}

/// The checksums of the tokens in a folder; `None` if they are not complete, or cannot be read.
fn checksums(folder: &Path) -> Option<DataChecksums> {
    let manifest = read_regular(&folder.join("manifest.json")).ok()?;
    Some(DataChecksums::new(&serde_json::from_slice::<Manifest>(&manifest).ok()?))
}

/// The text in `data` for the model in the folder `model`. Checks the tokenizer, since the text may
/// have been prepared again after training, with a vocabulary of the same size.
///
/// # Errors
/// When either cannot be read, or their tokenizers differ.
pub fn dataset_for(data: &Path, model: &Path) -> Result<Dataset> {
    let (dataset, tokenizer) = (Dataset::open(data)?, Tokenizer::from_folder(model)?);
    if dataset.tokenizer.first_difference(&tokenizer).is_some() {
        return Err(TextError::OtherTokens { data: data.to_owned(), model: model.to_owned() }.into());
    }
    Ok(dataset)
}

/// The configuration and the text of a run.
pub(super) fn config_and_dataset(run: &RunFolder) -> Result<(TrainConfig, Dataset)> {
    let config = TrainConfig::from_file(&run.file(CONFIG))?;
    let dataset = Dataset::open(&data_folder(run.path(), &config.text))?;
    Ok((config, dataset))
}

/// The windows of both splits.
///
/// # Errors
/// When a split is too short for one window; the line says which `context_length` would fit.
pub fn windows(config: &TrainConfig, dataset: &Dataset) -> Result<(TrainWindows, ValWindows)> {
    let rule = dataset.manifest.window_rule;
    let end_of_text = dataset.manifest.end_of_text;
    let context = config.context_length;
    let train = TrainWindows::new(&dataset.train, context, config.seed, rule, end_of_text)?;
    let val = ValWindows::new(&dataset.val, context, rule, end_of_text)?;
    let most = config.eval_tokens.div_ceil(context as u64) as usize;
    Ok((train, if most == 0 { val } else { val.evenly_spaced(most) }))
}

/// The folder of prepared tokens of `run`, which is a run's folder, a checkpoint in it, or such a
/// folder itself; without `run`, that of the newest run.
///
/// # Errors
/// Names the folder, and says what is missing.
pub fn data_of(run: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = run {
        if Dataset::is_in(path) {
            return Ok(path.to_owned());
        }
        if path.join(CONFIG).is_file() {
            return data_of_run(path); // works before the first checkpoint
        }
        if !path.exists() {
            return Err(TextError::Missing(path.to_owned()).into());
        }
    }
    let checkpoint = run_folder::find(run)?.folder;
    let around = checkpoint.canonicalize().at("cannot find", &checkpoint)?;
    match run_of(&around) {
        Some(run) => data_of_run(run),
        None => match around.parent().filter(|above| above.ends_with(CHECKPOINTS)).and_then(Path::parent) {
            Some(run) => Err(FolderError::LostConfig(run.to_owned()).into()),
            None => Err(TextError::NoRun(run_folder::original_of(&checkpoint)).into()),
        },
    }
}

fn data_of_run(run: &Path) -> Result<PathBuf> {
    let config = TrainConfig::from_file(&run.join(CONFIG))?;
    Ok(data_folder(run, &config.text))
}

/// The absolute path, independent of the working directory.
pub(super) fn absolute(path: &Path) -> Result<String, TextError> {
    let whole = std::path::absolute(path).at("cannot find", path)?;
    whole.into_os_string().into_string().map_err(|_| TextError::NotUtf8(path.to_owned()))
}
