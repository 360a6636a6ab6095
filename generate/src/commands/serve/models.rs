//! The models in memory: loaded when they are asked for, dropped when memory is needed for others.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use burn::tensor::Device;
use ember_cli::program::{Notes, UsageError};
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::config::FolderSettings;
use ember_decoding::engine::{Account, Engine, Figures, Limits};
use ember_decoding::load::{EndTokens, load, opening};
use ember_decoding::stream::token_text;
use ember_model::{GptConfig, WeightType, folder::read_config};
use tokio::sync::OwnedMutexGuard;
use tokio::time::sleep;
use xxhash_rust::xxh3::xxh3_64;

use super::constraints::Constraints;
use super::error::ApiError;
use super::names::{NamedFolder, Served};
use super::template::Template;

/// A model at work.
pub(super) struct Model {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) engine: Engine,
    pub(super) tokenizer: Option<Tokenizer>,
    /// Tells one tokenizer from another: models that have the same one mean the same by an id.
    pub(super) tokenizer_hash: Option<String>,
    pub(super) settings: FolderSettings,
    pub(super) end_tokens: Vec<u32>,
    pub(super) constraints: Constraints,
    pub(super) template: Option<Template>,
    /// Why it has no template though its folder has one.
    pub(super) template_refused: Option<String>,
    /// The name of the token that stands before a text, if one does.
    pub(super) before: Option<String>,
    /// The token that a text of its own begins with, where there is one.
    pub(super) opening: Option<u32>,
    pub(super) memory: Memory,
    /// Positions of the cache that a request may take.
    pub(super) usable_slots: usize,
}

/// What a model takes of the machine's memory.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    /// Positions that the cache has memory for.
    pub(super) slots: usize,
    /// Bytes of the cache for a position.
    pub(super) slot_bytes: usize,
    weight_bytes: usize,
}

impl Memory {
    /// Bytes of the cache.
    pub(super) fn cache_bytes(self) -> usize {
        self.slots * self.slot_bytes
    }

    fn bytes(self) -> usize {
        self.weight_bytes + self.cache_bytes()
    }
}

/// What all models are loaded with.
#[derive(Clone)]
pub(super) struct Loading {
    pub(super) device: Device,
    pub(super) weights: WeightType,
    pub(super) tokens_per_step: usize,
    /// Bytes of each model's cache at most.
    pub(super) cache_bytes: usize,
    /// Bytes of all models at most, weights and caches; one by itself may have more.
    pub(super) most_bytes: usize,
}

impl Loading {
    /// What a model of this shape will take.
    fn memory(&self, shape: &GptConfig) -> Result<Memory> {
        let (slot_bytes, context) = (shape.kv_cache_bytes(1, 1).max(1), shape.context_length);
        // A text of the whole context must always fit.
        let least = 2 * context;
        let slots = self.cache_bytes / slot_bytes;
        ensure!(
            slots >= least,
            UsageError::new(format!(
                "--cache-mib {}: two texts of {context} tokens, as many as this model looks back on, need {}",
                self.cache_bytes >> 20,
                (least * slot_bytes).div_ceil(1 << 20)
            ))
        );
        let weight_bytes = match self.weights {
            WeightType::F32 => 4.0,
            WeightType::Bf16 => 2.0,
            WeightType::Int8 => 8.5 / 8.0,
        };
        let weight_bytes = (shape.parameters() as f64 * weight_bytes) as usize;
        Ok(Memory { slots: slots.min(MOST_CONTEXTS * context), slot_bytes, weight_bytes })
    }
}

/// All models that can be asked for.
pub(super) struct Models {
    served: Served,
    loading: Loading,
    /// Those in memory, the least recently asked for first.
    loaded: Mutex<Vec<Arc<Model>>>,
    /// Held while a model loads, so that none is loaded twice, and never two at once: there may be no
    /// memory for both.
    turn: Arc<tokio::sync::Mutex<()>>,
    accounts: Mutex<Accounts>,
    /// The models of which it was said that their template cannot be used: each is said once, however
    /// often it is loaded.
    without_template: Mutex<BTreeSet<String>>,
    /// Where that is said.
    pub(super) notes: Notes,
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

/// How often is looked whether there is memory for a model.
const LOOKING: Duration = Duration::from_millis(5);

/// How long a request waits for the memory of other models; tests do not wait that long.
pub(super) const MOST_WAIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

impl Models {
    /// # Errors
    /// When two have one name.
    pub(super) fn new(served: Served, loading: Loading) -> Result<Self> {
        served.check_names()?;
        let (loaded, turn, accounts, without_template) = Default::default();
        let (notes, created) = (Notes::new(true), now());
        Ok(Self { served, loading, loaded, turn, accounts, without_template, notes, created })
    }

    /// All that can be asked for.
    pub(super) fn all(&self) -> Vec<NamedFolder> {
        self.served.all()
    }

    /// The one of this name, or the default.
    ///
    /// # Errors
    /// When there is none of this name.
    pub(super) fn find(&self, name: Option<&str>) -> Result<NamedFolder, ApiError> {
        self.served.find(name)
    }

    /// This model, if it is in memory.
    pub(super) fn in_memory(&self, wanted: &NamedFolder) -> Option<Arc<Model>> {
        let mut loaded = locked(&self.loaded);
        let place = loaded.iter().position(|model| model.name == wanted.name)?;
        let model = loaded.remove(place);
        loaded.push(Arc::clone(&model));
        Some(model)
    }

    /// Waits, without a thread, until nobody loads one.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Waits, without a thread, until there is memory for this model, if it is not in memory already. The caller
    /// has the turn.
    ///
    /// # Errors
    /// When the model is gone, or others are still at work at `until`.
    pub(super) async fn room(&self, wanted: &NamedFolder, until: Instant) -> Result<(), ApiError> {
        if self.in_memory(wanted).is_some() {
            return Ok(());
        }
        if !wanted.folder.join("config.json").is_file() {
            return Err(ApiError::gone(&wanted.name));
        }
        let memory = || -> Result<Memory> { self.loading.memory(&read_config(&wanted.folder)?) };
        let bytes = memory().map_err(|error| ApiError::ours(format!("{error:#}")))?.bytes();
        while !self.has_room(bytes) {
            if Instant::now() >= until {
                return Err(ApiError::no_room(&wanted.name));
            }
            sleep(LOOKING).await;
        }
        Ok(())
    }

    /// This model; loaded now where it is not in memory. The caller has the turn, and found room.
    pub(super) fn get(&self, wanted: &NamedFolder, _turn: OwnedMutexGuard<()>) -> Result<Arc<Model>, ApiError> {
        if let Some(model) = self.in_memory(wanted) {
            return Ok(model);
        }
        let loaded = self.load(wanted);
        // Also where it could be loaded: what was no longer there may have been taken for left out.
        if !wanted.folder.join("config.json").is_file() {
            return Err(ApiError::gone(&wanted.name));
        }
        let model = Arc::new(loaded.map_err(|error| ApiError::ours(format!("{error:#}")))?);
        locked(&self.loaded).push(Arc::clone(&model));
        Ok(model)
    }

    /// Whether there is room for another of so many bytes, also once models are put away that nobody uses, the
    /// least recently asked for first. Those that are at work stay where others find them, and none leaves
    /// where that would not do.
    fn has_room(&self, bytes: usize) -> bool {
        let mut loaded = locked(&self.loaded);
        // Nobody begins to use one while the lock is held.
        let is_unused = |model: &Arc<Model>| Arc::strong_count(model) == 1;
        let bytes_of = |model: &Arc<Model>| model.memory.bytes();
        let fits = |others: usize| others == 0 || others + bytes <= self.loading.most_bytes;
        if !fits(loaded.iter().filter(|model| !is_unused(model)).map(bytes_of).sum()) {
            return false;
        }
        while !fits(loaded.iter().map(bytes_of).sum()) {
            let Some(unused) = loaded.iter().position(is_unused) else { return false };
            loaded.remove(unused);
        }
        let left = loaded.len();
        drop(loaded);
        // What was put away has its memory until its engine has ended.
        self.at_work() <= left
    }

    /// How many models have memory: those that can be used, and those that finish what they have begun.
    pub(super) fn at_work(&self) -> usize {
        self.passes();
        locked(&self.accounts).open.len()
    }

    /// What matrices are kept in.
    pub(super) fn weights(&self) -> WeightType {
        self.loading.weights
    }

    /// Loads the default model.
    pub(super) fn load_default(&self) -> Result<Arc<Model>> {
        let model = Arc::new(self.load(self.served.default_folder())?);
        locked(&self.loaded).push(Arc::clone(&model));
        Ok(model)
    }

    /// Those in memory.
    pub(super) fn loaded(&self) -> Vec<Arc<Model>> {
        locked(&self.loaded).clone()
    }

    /// What was done since the server began.
    pub(super) fn passes(&self) -> Passes {
        let mut accounts = locked(&self.accounts);
        let Accounts { open, closed } = &mut *accounts;
        open.retain_mut(|account| {
            let last = account.closed();
            *closed = last.map_or(*closed, |figures| closed.and(figures));
            last.is_none()
        });
        open.iter().fold(*closed, |passes, account| passes.and(account.figures()))
    }

    fn load(&self, NamedFolder { name, folder }: &NamedFolder) -> Result<Model> {
        let Loading { device, weights, tokens_per_step, .. } = &self.loading;
        let (model, tokenizer) = load(folder, *weights, true, || Ok(device.clone()))?;
        let shape = model.config().clone();
        let memory = self.loading.memory(&shape)?;
        let limits = Limits { tokens_per_step: *tokens_per_step, slots: memory.slots };
        let (template, template_refused) = self.template(name, Template::of_folder(folder, tokenizer.as_ref()));
        let model = Model {
            name: name.clone(),
            folder: folder.clone(),
            end_tokens: EndTokens::read(folder, tokenizer.as_ref(), shape.vocab_size)?.ids,
            constraints: Constraints::default(),
            settings: FolderSettings::read(folder)?,
            template,
            template_refused,
            before: tokenizer.as_ref().and_then(before),
            opening: opening(folder, tokenizer.as_ref(), shape.vocab_size)?,
            tokenizer_hash: tokenizer.as_ref().map(hash),
            tokenizer,
            memory,
            usable_slots: limits.usable_slots(),
            engine: Engine::start(model, limits).context("cannot start a thread for the model")?,
        };
        locked(&self.accounts).open.push(model.engine.account());
        Ok(model)
    }

    /// The template of the model of this name, or why it has none: it goes on with texts all the same.
    fn template(&self, name: &str, read: Result<Option<Template>>) -> (Option<Template>, Option<String>) {
        let error = match read {
            Ok(template) => return (template, None),
            Err(error) => format!("{error:#}"),
        };
        if locked(&self.without_template).insert(name.to_owned()) {
            self.notes
                .say(format!("model {name}: its chat template cannot be used, and no conversation be held: {error}"));
        }
        (None, Some(error))
    }
}

/// What is behind a lock; a panic of who held it leaves it as it is.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970: when a model, or an answer, was made.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// xxh3 of what every id stands for: a file of another format may split texts in other words.
fn hash(tokenizer: &Tokenizer) -> String {
    let mut all = Vec::new();
    for id in 0..tokenizer.vocab_size() as u32 {
        if let Some(bytes) = tokenizer.token_bytes(id) {
            all.extend_from_slice(&id.to_le_bytes());
            all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            all.extend_from_slice(&bytes);
        }
    }
    format!("{:016x}", xxh3_64(&all))
}

/// The name of the token that a tokenizer puts before texts.
fn before(tokenizer: &Tokenizer) -> Option<String> {
    let first = *tokenizer.before("", SpecialTokens::Text).first()?;
    Some(token_text(Some(tokenizer), first))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;
    use std::thread;

    use super::super::tests::{checkpoint, tokenizer};
    use super::*;

    fn models_of(folder: &Path, cache_bytes: usize, most_bytes: usize) -> Result<Models> {
        checkpoint(folder, &tokenizer());
        let folders = ["a", "b"].map(|name| NamedFolder { name: name.to_owned(), folder: folder.to_owned() }).to_vec();
        let loading =
            Loading { device: Device::flex(), weights: WeightType::F32, tokens_per_step: 16, cache_bytes, most_bytes };
        Models::new(Served { folders, run: None }, loading)
    }

    fn get(models: &Models, name: &str) -> Result<Arc<Model>, ApiError> {
        let (wanted, turn) = (models.find(Some(name))?, Arc::clone(&models.turn).try_lock_owned().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(models.room(&wanted, Instant::now() + MOST_WAIT))?;
        models.get(&wanted, turn)
    }

    /// The memory of one that is put away is free before another is loaded, also where a request still
    /// writes with it.
    #[test]
    fn models_take_no_more_memory_than_they_may() {
        let folder = tempfile::tempdir().unwrap();
        let models = models_of(folder.path(), 1 << 20, 1 << 20).unwrap();
        let first = get(&models, "a").unwrap();
        assert!(Arc::ptr_eq(&first, &get(&models, "a").unwrap()));
        thread::scope(|scope| {
            let second = scope.spawn(|| get(&models, "b").map(|model| model.name.clone()).unwrap());
            thread::sleep(10 * LOOKING);
            assert!(!second.is_finished() && models.at_work() == 1);
            drop(first);
            assert_eq!(second.join().unwrap(), "b");
        });
        assert_eq!(models.at_work(), 1);
        std::fs::remove_file(folder.path().join("config.json")).unwrap();
        assert!(get(&models, "b").is_ok());
        assert_eq!(get(&models, "a").err().unwrap().body()["error"]["code"], 404);
    }

    #[test]
    fn a_model_whose_template_cannot_be_used_is_served_without() {
        let folder = tempfile::tempdir().unwrap();
        let models = models_of(folder.path(), 1 << 20, 1 << 30).unwrap();
        std::fs::write(folder.path().join("chat_template.jinja"), "{% if messages %}").unwrap();
        for model in [models.load_default().unwrap(), get(&models, "b").unwrap()] {
            assert!(model.template.is_none());
            assert!(
                model.template_refused.as_deref().is_some_and(|why| why.contains("syntax error")),
                "{:?}",
                model.template_refused
            );
        }
        std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
        let model = models.load(&models.find(None).unwrap()).unwrap();
        assert!(model.template.is_some() && model.template_refused.is_none());
    }

    #[test]
    fn one_that_is_at_work_is_there_for_others_and_who_needs_its_memory_is_told_to_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let models = models_of(folder.path(), 1 << 20, 1 << 20).unwrap();
        let first = get(&models, "a").unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| get(&models, "b").err().unwrap().body()["error"]["code"].clone());
            thread::sleep(10 * LOOKING);
            let found = models.in_memory(&models.find(Some("a")).unwrap());
            assert!(!second.is_finished() && Arc::ptr_eq(&first, &found.unwrap()));
            assert_eq!(second.join().unwrap(), 503);
        });
        assert!(Arc::ptr_eq(&first, &get(&models, "a").unwrap()));
        drop(first);
        assert_eq!(get(&models, "b").unwrap().name, "b");
    }

    #[test]
    fn a_cache_has_room_for_two_texts_of_the_whole_context() {
        let folder = tempfile::tempdir().unwrap();
        let error = models_of(folder.path(), 1000, 1 << 30).unwrap().load_default().err().unwrap().to_string();
        assert!(error.starts_with("--cache-mib 0: two texts of 64 tokens"), "{error}");
    }
}
