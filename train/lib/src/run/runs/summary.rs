//! The summary of a run, read from its folder.

use std::path::{Path, PathBuf};
use std::{fs, time::UNIX_EPOCH};

use ember_data::prepare::Manifest;
use ember_decoding::run_folder::RUNS;
use ember_host::file_error::{At, FileError, with_causes};
use ember_host::files::{is_irregular, name_of, read_regular, read_text};
use serde::{Serialize, Serializer};

use crate::error::LogError;
use crate::run::card::tokenizer_kind;
use crate::run::checkpoint::{STATE, text_of};
use crate::run::folder::{CONFIG, LATEST, LOCK, METRICS, Pointer, REMOVING, RunFolder, newest_step, step_of};
use crate::run::report::{Row, jsonl, last_step};
use crate::run::{disk::used_bytes, text::data_folder};
use crate::step::progress::{Best, DataChecksums, Evaluations};

/// Whether a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A process is training it.
    Running,
    /// All its steps are taken, or it ran out of patience.
    Finished,
    /// It can be resumed.
    Interrupted,
    /// It ended before its configuration was written; its text may be prepared.
    NotBegun,
    /// Its removal was interrupted; it can only be removed again.
    HalfRemoved,
    /// It has checkpoints but no configuration.
    LostConfig,
}

/// Why a file does not tell about its run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The log, and with it the loss, cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The configuration, and with it the settings, cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The configuration is damaged.
    #[error("{} is no configuration of a run ({reason}); restore that file", path.display())]
    Configuration {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another file is a pipe, a device or a socket, which is not read.
    #[error("{0} is a pipe, a device or a socket, not a file; move it away, or put the file back")]
    Irregular(PathBuf),
}

/// The summary of a run; `None` for what its folder does not tell.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The name by which commands find it: its folder's name in `runs/`, elsewhere its path.
    #[serde(rename = "run")]
    pub name: String,
    /// Its folder.
    #[serde(serialize_with = "as_display")]
    pub path: PathBuf,
    /// Whether it is over.
    pub state: State,
    /// When a step was last logged or saved, in seconds since 1970.
    pub trained: f64,
    /// Steps taken.
    pub step: u64,
    /// Steps of the whole run.
    pub max_steps: Option<u64>,
    /// The evaluation with the lowest validation loss.
    pub best: Option<Best>,
    /// That loss in bits per byte of the validation split.
    pub bits_per_byte: Option<f64>,
    /// Whether it has the lowest loss of several listed runs on the same text.
    pub lowest: bool,
    /// Number of parameters.
    pub parameters: Option<u64>,
    /// `gpt2`, `llama` or `qwen3`.
    pub architecture: Option<String>,
    /// `chars`, `bytes` or `bpe:N`; for a tokenizer from a file, its kind.
    pub tokenizer: Option<String>,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Bytes of the checkpoints.
    pub checkpoint_bytes: u64,
    /// Why the log, or another file, cannot be read.
    #[serde(serialize_with = "as_optional_display")]
    pub problem: Option<Problem>,
    /// Checksums of the run's text.
    #[serde(skip)]
    data: Option<DataChecksums>,
    /// The manifest of that text, if it is still there.
    #[serde(skip)]
    manifest: Option<Manifest>,
}

impl Summary {
    /// Summarises the run in `path`. Damaged files are treated as missing. `problem` names a damaged
    /// log or configuration, or a file that is not a regular one; other commands diagnose the rest.
    pub(super) fn read(path: &Path) -> Self {
        let (config, unconfigured) = match read_configuration(path) {
            Ok(config) => (config, None),
            Err(problem) => (toml::Table::new(), Some(problem)),
        };
        let number = |key: &str| config.get(key).and_then(toml::Value::as_integer).map(|number| number as u64);
        let log = path.join(METRICS);
        let (rows, unread): (Vec<Row>, _) = match jsonl::read(&log) {
            Ok(rows) => (rows, None),
            Err(error) => (Vec::new(), Some(Problem::from(error))),
        };
        let mut evaluations = Evaluations::default();
        for (step, loss) in rows.iter().filter_map(|row| Some((row.step, row.val_loss?))) {
            evaluations.record(step, loss);
        }
        let facts = rows.iter().find_map(|row| row.run.as_ref());
        let run = RunFolder::owned_elsewhere(path);
        let latest = run.pointed(Pointer::Latest).unwrap_or(None);
        let saved = latest.as_deref().and_then(step_of);
        let max_steps = number("max_steps").or(facts.map(|facts| facts.max_steps));
        let patience = number("patience").filter(|most| *most > 0);
        let is_finished = max_steps.is_some_and(|most| saved >= Some(most))
            || patience.is_some_and(|most| evaluations.since_best >= most);
        let irregular = irregular(path, &config, latest.as_deref()).map(Problem::Irregular);
        let problem = unread.or(irregular).or(unconfigured);
        let learned = latest.as_deref().and_then(text_of);
        let manifest = manifest(path, &config, learned.as_ref());
        let bits_per_byte = evaluations.best.and_then(|best| {
            let logged = rows.iter().filter(|row| row.step == best.step).find_map(|row| row.bits_per_byte);
            logged.or_else(|| manifest.as_ref()?.bits_per_byte(best.val_loss))
        });
        Self {
            name: name(path),
            path: path.to_owned(),
            state: state(path, is_finished),
            trained: trained(path),
            step: last_step(&rows).max(saved).unwrap_or(0),
            max_steps,
            best: evaluations.best,
            bits_per_byte,
            lowest: false,
            parameters: facts.map(|facts| facts.parameters),
            architecture: config.get("architecture").and_then(toml::Value::as_str).map(str::to_owned),
            tokenizer: manifest.as_ref().map(|text| {
                let file = text_folder(path, &config).join("tokenizer.json");
                tokenizer_kind(&text.tokenizer, || serde_json::from_slice(&read_regular(&file).ok()?).ok())
            }),
            bytes: used_bytes(path),
            checkpoint_bytes: used_bytes(&run.checkpoints()),
            problem,
            data: learned.or_else(|| manifest.as_ref().map(DataChecksums::new)),
            manifest,
        }
    }

    /// Whether no other run of `all` on the same text has a lower loss, and there is at least one.
    pub(super) fn is_lowest_of(&self, all: &[Self]) -> bool {
        let Some(own) = self.bits_per_byte else { return false };
        let others = all.iter().filter(|other| other.path != self.path && self.has_same_held_out_text(other));
        let mut losses = others.filter_map(|other| other.bits_per_byte).peekable();
        losses.peek().is_some() && losses.all(|other| own <= other)
    }

    /// Whether the validation splits are equal: the same tokens or, with different tokenizers, the
    /// same text in as many documents.
    fn has_same_held_out_text(&self, other: &Self) -> bool {
        let both = self.data.as_ref().zip(other.data.as_ref());
        if let Some((own, other)) = both.filter(|(own, other)| own.tokenizer == other.tokenizer) {
            return own.val == other.val;
        }
        let text = |run: &Self| {
            let of = run.manifest.as_ref().filter(|of| !of.held_out_checksum.is_empty())?;
            Some((of.val.documents, of.held_out_checksum.clone()))
        };
        text(self).is_some_and(|own| text(other) == Some(own))
    }
}

fn state(run: &Path, is_finished: bool) -> State {
    if RunFolder::is_in_use(run) {
        State::Running
    } else if !run.join(CONFIG).exists() {
        match newest_step(run) {
            _ if run.join(REMOVING).exists() => State::HalfRemoved,
            Some(_) => State::LostConfig,
            None => State::NotBegun,
        }
    } else if is_finished {
        State::Finished
    } else {
        State::Interrupted
    }
}

/// The keys of a run's configuration; empty if it cannot be read. Not a TrainConfig, since runs of
/// other versions have other keys.
pub fn configuration(run: &Path) -> toml::Table {
    read_configuration(run).unwrap_or_default()
}

/// As [`configuration`], with the reason if there is one that cannot be read.
fn read_configuration(run: &Path) -> Result<toml::Table, Problem> {
    let path = run.join(CONFIG);
    if !path.exists() {
        return Ok(toml::Table::new());
    }
    let text = read_text(&path).at("cannot read", &path)?;
    let reason = match text.parse::<toml::Table>() {
        Ok(table) if table.is_empty() => "it has no keys".to_owned(),
        Ok(table) => return Ok(table),
        Err(error) => error.message().to_owned(),
    };
    Err(Problem::Configuration { path, reason })
}

/// The first of the files that a summary is read from, beside the log, that is a pipe, a device or a
/// socket.
fn irregular(run: &Path, config: &toml::Table, latest: Option<&Path>) -> Option<PathBuf> {
    let text = text_folder(run, config);
    let own = [CONFIG, LOCK, LATEST].map(|name| run.join(name));
    let state = latest.map(|checkpoint| checkpoint.join(STATE));
    let of_text = ["manifest.json", "tokenizer.json"].map(|name| text.join(name));
    own.into_iter().chain(state).chain(of_text).find(|file| is_irregular(file))
}

/// The manifest of a run's text; `None` if the text has been replaced by another one than the run
/// has `learned`.
fn manifest(run: &Path, config: &toml::Table, learned: Option<&DataChecksums>) -> Option<Manifest> {
    let file = text_folder(run, config).join("manifest.json");
    let manifest: Manifest = serde_json::from_slice(&read_regular(&file).ok()?).ok()?;
    let is_learned = learned.is_none_or(|learned| *learned == DataChecksums::new(&manifest));
    is_learned.then_some(manifest)
}

/// The folder of the tokens of a run with this configuration.
pub(super) fn text_folder(run: &Path, config: &toml::Table) -> PathBuf {
    let text = config.get("text").and_then(toml::Value::as_array);
    let text: Vec<String> = text.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
    data_folder(run, &text)
}

fn name(path: &Path) -> String {
    if path.parent() == Some(Path::new(RUNS)) { folder_name(path) } else { path.display().to_string() }
}

fn folder_name(path: &Path) -> String {
    name_of(path).unwrap_or_else(|| path.display().to_string())
}

/// When a step of the run was last logged or saved, else when its folder was last changed.
fn trained(run: &Path) -> f64 {
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let last = changed(&run.join(METRICS)).max(changed(&run.join(LATEST))).or_else(|| changed(run));
    last.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default().as_secs_f64()
}

fn as_display<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

fn as_optional_display<S: Serializer>(problem: &Option<Problem>, to: S) -> Result<S::Ok, S::Error> {
    problem.as_ref().map(|problem| with_causes(problem)).serialize(to)
}
