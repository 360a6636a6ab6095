//! The models that can be asked for: loaded when they are, dropped when memory is needed for
//! others.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use burn::tensor::Device;
use ember_cli::program::UsageError;
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::config::FolderSettings;
use ember_decoding::engine::{Account, Engine, Figures, Limits};
use ember_decoding::load::{EndTokens, load, opening};
use ember_decoding::run_folder;
use ember_decoding::stream::token_bytes;
use ember_model::WeightType;
use tokio::sync::OwnedMutexGuard;

use super::error::ApiError;
use super::template::Template;

/// A model at work.
pub(super) struct Model {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) engine: Engine,
    pub(super) tokenizer: Option<Tokenizer>,
    pub(super) settings: FolderSettings,
    pub(super) end_tokens: Vec<u32>,
    pub(super) template: Option<Template>,
    /// The name of the token that stands before a text, if one does.
    pub(super) before: Option<String>,
    /// The token that a text of its own begins with, where there is one.
    pub(super) opening: Option<u32>,
    /// Positions that the cache has memory for.
    pub(super) slots: usize,
    /// Positions that a request may take of them.
    pub(super) usable_slots: usize,
    /// Bytes of the cache for a position.
    pub(super) slot_bytes: usize,
    /// Bytes of the weights and the cache.
    bytes: usize,
}

/// What all models are loaded with.
pub(super) struct Loading {
    pub(super) device: Device,
    pub(super) weights: WeightType,
    pub(super) tokens_per_step: usize,
    /// Bytes of each model's cache at most.
    pub(super) cache_bytes: usize,
    /// Bytes of all models at most, weights and caches; one by itself may have more.
    pub(super) most_bytes: usize,
}

/// A model's name and the folder that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) folder: PathBuf,
}

/// All models that can be asked for.
pub(super) struct Models {
    /// The first is that of who names none.
    all: Vec<Named>,
    loading: Loading,
    /// Those in memory, the least recently asked for first.
    loaded: Mutex<Vec<Arc<Model>>>,
    /// Had by who loads one: of two who ask for the same, one loads it, and never are two loaded at
    /// once, for which there may be no memory.
    turn: Arc<tokio::sync::Mutex<()>>,
    accounts: Mutex<Accounts>,
    /// Seconds since 1970 when the server began.
    pub(super) created: u64,
}

/// What the engines of all models have done, those that were put away included.
#[derive(Default)]
struct Accounts {
    open: Vec<Account>,
    /// Of those that have ended.
    closed: Passes,
}

/// Passes through models, and the tokens that went through.
#[derive(Clone, Copy, Default)]
pub(super) struct Passes {
    pub(super) steps: u64,
    pub(super) tokens: u64,
}

impl Passes {
    fn and(self, Figures { steps, tokens, .. }: Figures) -> Self {
        Self { steps: self.steps + steps, tokens: self.tokens + tokens }
    }
}

/// Texts of this many contexts' length fit the cache of a small model, for which the bound in bytes
/// would allow far more than anybody asks for.
const MOST_CONTEXTS: usize = 256;

impl Models {
    /// # Errors
    /// When two have one name.
    pub(super) fn new(all: Vec<Named>, loading: Loading) -> Result<Self> {
        for (i, Named { name, .. }) in all.iter().enumerate() {
            ensure!(
                all[..i].iter().all(|other| other.name != *name),
                UsageError::new(format!("two models are called {name}; give each a name by --model NAME=FOLDER"))
            );
        }
        let (loaded, turn, accounts) = Default::default();
        Ok(Self { all, loading, loaded, turn, accounts, created: now() })
    }

    pub(super) fn all(&self) -> &[Named] {
        &self.all
    }

    /// The one of this name, or the first.
    pub(super) fn named(&self, name: Option<&str>) -> Result<&Named, ApiError> {
        let Some(name) = name else { return Ok(&self.all[0]) };
        let found = self.all.iter().find(|named| named.name == name);
        found.ok_or_else(|| ApiError::unknown_model(name, self.all.iter().map(|named| &*named.name)))
    }

    /// This model, if it is in memory.
    pub(super) fn in_memory(&self, named: &Named) -> Option<Arc<Model>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let place = loaded.iter().position(|model| model.name == named.name)?;
        let model = loaded.remove(place);
        loaded.push(Arc::clone(&model));
        Some(model)
    }

    /// Waits, without a thread, until nobody loads one.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// This model; loaded now where it is not in memory, by who has the turn.
    pub(super) fn get(&self, named: &Named, _turn: OwnedMutexGuard<()>) -> Result<Arc<Model>, ApiError> {
        if let Some(model) = self.in_memory(named) {
            return Ok(model);
        }
        let model = Arc::new(self.load(named).map_err(|error| ApiError::ours(format!("{error:#}")))?);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        while !loaded.is_empty()
            && loaded.iter().map(|model| model.bytes).sum::<usize>() + model.bytes > self.loading.most_bytes
        {
            loaded.remove(0); // its requests finish what they have begun
        }
        loaded.push(Arc::clone(&model));
        Ok(model)
    }

    /// What matrices are kept in.
    pub(super) fn weights(&self) -> WeightType {
        self.loading.weights
    }

    /// The model of who names none.
    pub(super) fn first(&self) -> Result<Arc<Model>> {
        let model = Arc::new(self.load(&self.all[0])?);
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&model));
        Ok(model)
    }

    /// Those in memory.
    pub(super) fn loaded(&self) -> Vec<Arc<Model>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was done since the server began.
    pub(super) fn passes(&self) -> Passes {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let Accounts { open, closed } = &mut *accounts;
        open.retain_mut(|account| {
            let last = account.closed();
            *closed = last.map_or(*closed, |figures| closed.and(figures));
            last.is_none()
        });
        open.iter().fold(*closed, |passes, account| passes.and(account.figures()))
    }

    fn load(&self, Named { name, folder }: &Named) -> Result<Model> {
        let Loading { device, weights, tokens_per_step, cache_bytes, .. } = &self.loading;
        let (model, tokenizer) = load(folder, *weights, true, || Ok(device.clone()))?;
        let shape = model.config().clone();
        let slot_bytes = shape.kv_cache_bytes(1, 1).max(1);
        let context = shape.context_length;
        // A text of the whole context must always fit.
        let slots = (cache_bytes / slot_bytes).clamp(2 * context, MOST_CONTEXTS * context);
        let limits = Limits { tokens_per_step: *tokens_per_step, slots };
        let weight_bytes = match weights {
            WeightType::F32 => 4.0,
            WeightType::Bf16 => 2.0,
            WeightType::Int8 => 8.5 / 8.0,
        };
        let model = Model {
            name: name.clone(),
            folder: folder.clone(),
            end_tokens: EndTokens::read(folder, tokenizer.as_ref(), shape.vocab_size)?.ids,
            settings: FolderSettings::read(folder)?,
            template: Template::of_folder(folder, tokenizer.as_ref())?,
            before: tokenizer.as_ref().and_then(before),
            opening: opening(folder, tokenizer.as_ref(), shape.vocab_size)?,
            tokenizer,
            slots,
            usable_slots: limits.usable_slots(),
            slot_bytes,
            bytes: (shape.parameters() as f64 * weight_bytes) as usize + slots * slot_bytes,
            engine: Engine::start(model, limits),
        };
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner).open.push(model.engine.account());
        Ok(model)
    }
}

/// Seconds since 1970: when a model, or an answer, was made.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The name of the token that a tokenizer puts before texts.
fn before(tokenizer: &Tokenizer) -> Option<String> {
    let first = *tokenizer.before("", SpecialTokens::Text).first()?;
    Some(String::from_utf8_lossy(&token_bytes(Some(tokenizer), first)).into_owned())
}

/// The model that `from` means, and with `checkpoints` all checkpoints of its run.
pub(super) fn named_by(from: Option<&Path>, checkpoints: bool) -> Result<Vec<Named>> {
    let found = run_folder::find(from)?;
    let folder = found.folder.canonicalize().unwrap_or_else(|_| found.folder.clone());
    let is_named = from.and_then(|from| from.canonicalize().ok()).is_some_and(|from| from == folder);
    let run = folder.parent().filter(|parent| parent.ends_with("checkpoints")).and_then(Path::parent);
    let Some(run) = run else {
        ensure!(!checkpoints, UsageError::new("--checkpoints: this is no run, whose checkpoints could be served"));
        return Ok(vec![Named { name: last_name(&folder), folder: found.folder }]);
    };
    let name = if is_named { at_step(run, &folder) } else { last_name(run) };
    let mut all = vec![Named { name, folder: found.folder }];
    if checkpoints {
        let others = run_folder::checkpoints(run)?.into_iter();
        let others = others.map(|folder| Named { name: at_step(run, &folder), folder });
        // A checkpoint that was named itself is the first of them.
        let others: Vec<Named> = others.filter(|other| other.name != all[0].name).collect();
        all.extend(others);
    }
    Ok(all)
}

/// The same with the checkpoint that its folder means, which may be a run's.
pub(super) fn found(Named { name, folder }: &Named) -> Result<Named> {
    Ok(Named { name: name.clone(), folder: run_folder::find(Some(folder))?.folder })
}

/// `NAME=FOLDER`, as it is typed.
pub(super) fn named(text: &str) -> Result<Named, String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !folder.is_empty() => {
            Ok(Named { name: name.to_owned(), folder: PathBuf::from(folder) })
        }
        _ => Err("write NAME=FOLDER".to_owned()),
    }
}

/// What a checkpoint is called: `run@step`.
fn at_step(run: &Path, checkpoint: &Path) -> String {
    let step = last_name(checkpoint);
    let number = step.trim_start_matches("step-").trim_start_matches('0');
    format!("{}@{}", last_name(run), if number.is_empty() { "0" } else { number })
}

fn last_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_checkpoint_that_is_named_is_the_first_of_its_run_and_stands_there_once() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("mine");
        for step in ["step-00000005", "step-00000010"] {
            let folder = run.join("checkpoints").join(step);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("config.json"), "{}").unwrap();
        }
        std::fs::write(run.join("best"), "step-00000010").unwrap();
        let names = |from: &Path| -> Vec<String> {
            named_by(Some(from), true).unwrap().into_iter().map(|named| named.name).collect()
        };
        assert_eq!(names(&run), ["mine", "mine@5", "mine@10"]);
        assert_eq!(names(&run.join("checkpoints/step-00000010")), ["mine@10", "mine@5"]);
    }
}
