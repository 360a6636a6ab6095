//! The models that can be asked for: loaded when they are, dropped when memory is needed for
//! others.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use burn::tensor::Device;
use ember_cli::program::UsageError;
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::config::FolderSettings;
use ember_decoding::engine::{Account, Engine, Figures, Limits};
use ember_decoding::load::{EndTokens, load, opening};
use ember_decoding::run_folder;
use ember_decoding::stream::token_bytes;
use ember_model::{GptConfig, WeightType, folder::read_config};
use tokio::sync::OwnedMutexGuard;
use tokio::time::sleep;
use xxhash_rust::xxh3::xxh3_64;

use super::error::ApiError;
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
    pub(super) template: Option<Template>,
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

/// A model's name and the folder that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) folder: PathBuf,
}

/// Which models can be asked for.
#[derive(Debug)]
pub(super) struct Served {
    /// Those that were named when the server began; the first is that of who names none.
    pub(super) named: Vec<Named>,
    /// A run whose checkpoints can be asked for, too: those that it has at the time.
    pub(super) run: Option<PathBuf>,
}

impl Served {
    pub(super) fn all(&self) -> Vec<Named> {
        let mut all = self.named.clone();
        // Of a run that is being moved or removed there is nothing to ask for.
        if let Some(run) = &self.run {
            let folders = run_folder::checkpoints(run).unwrap_or_default().into_iter();
            let checkpoints = folders.map(|folder| Named { name: at_step(run, &folder), folder });
            // A checkpoint that was named itself stands there already.
            all.extend(checkpoints.filter(|checkpoint| self.named.iter().all(|named| named.name != checkpoint.name)));
        }
        all
    }
}

/// All models that can be asked for.
pub(super) struct Models {
    served: Served,
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

/// How often is looked whether there is memory for a model.
const LOOKING: Duration = Duration::from_millis(5);

/// How long who asks for a model waits for the memory of others; tests do not wait that long.
pub(super) const MOST_WAIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

impl Models {
    /// # Errors
    /// When two have one name.
    pub(super) fn new(served: Served, loading: Loading) -> Result<Self> {
        for (i, Named { name, .. }) in served.named.iter().enumerate() {
            ensure!(
                served.named[..i].iter().all(|other| other.name != *name),
                UsageError::new(format!("two models are called {name}; give each a name by --model NAME=FOLDER"))
            );
        }
        let (loaded, turn, accounts) = Default::default();
        Ok(Self { served, loading, loaded, turn, accounts, created: now() })
    }

    pub(super) fn all(&self) -> Vec<Named> {
        self.served.all()
    }

    /// The one of this name, or the first.
    pub(super) fn named(&self, name: Option<&str>) -> Result<Named, ApiError> {
        let named = &self.served.named;
        let Some(name) = name else { return Ok(named[0].clone()) };
        if let Some(found) = named.iter().find(|named| named.name == name) {
            return Ok(found.clone());
        }
        let all = self.all();
        let found = all.iter().find(|named| named.name == name).cloned();
        found.ok_or_else(|| ApiError::unknown_model(name, all.iter().map(|named| &*named.name)))
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

    /// Waits, without a thread, until there is memory for this model, if it is not in memory already. For who
    /// has the turn.
    ///
    /// # Errors
    /// When the model is gone, or others are still at work at `until`.
    pub(super) async fn room(&self, named: &Named, until: Instant) -> Result<(), ApiError> {
        if self.in_memory(named).is_some() {
            return Ok(());
        }
        if !named.folder.join("config.json").is_file() {
            return Err(ApiError::gone(&named.name));
        }
        let memory = || -> Result<Memory> { self.loading.memory(&read_config(&named.folder)?) };
        let bytes = memory().map_err(|error| ApiError::ours(format!("{error:#}")))?.bytes();
        while !self.has_room(bytes) {
            if Instant::now() >= until {
                return Err(ApiError::no_room(&named.name));
            }
            sleep(LOOKING).await;
        }
        Ok(())
    }

    /// This model; loaded now where it is not in memory, by who has the turn and found room.
    pub(super) fn get(&self, named: &Named, _turn: OwnedMutexGuard<()>) -> Result<Arc<Model>, ApiError> {
        if let Some(model) = self.in_memory(named) {
            return Ok(model);
        }
        let model = self.load(named).map_err(|error| ApiError::ours(format!("{error:#}")))?;
        let model = Arc::new(model);
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&model));
        Ok(model)
    }

    /// Whether there is room for another of so many bytes, also once models are put away that nobody uses, the
    /// least recently asked for first. Those that are at work stay where others find them, and none leaves
    /// where that would not do.
    fn has_room(&self, bytes: usize) -> bool {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner).open.len()
    }

    /// What matrices are kept in.
    pub(super) fn weights(&self) -> WeightType {
        self.loading.weights
    }

    /// The model of who names none.
    pub(super) fn first(&self) -> Result<Arc<Model>> {
        let model = Arc::new(self.load(&self.served.named[0])?);
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
        let Loading { device, weights, tokens_per_step, .. } = &self.loading;
        let (model, tokenizer) = load(folder, *weights, true, || Ok(device.clone()))?;
        let shape = model.config().clone();
        let memory = self.loading.memory(&shape)?;
        let limits = Limits { tokens_per_step: *tokens_per_step, slots: memory.slots };
        let model = Model {
            name: name.clone(),
            folder: folder.clone(),
            end_tokens: EndTokens::read(folder, tokenizer.as_ref(), shape.vocab_size)?.ids,
            settings: FolderSettings::read(folder)?,
            template: Template::of_folder(folder, tokenizer.as_ref())?,
            before: tokenizer.as_ref().and_then(before),
            opening: opening(folder, tokenizer.as_ref(), shape.vocab_size)?,
            tokenizer_hash: tokenizer.as_ref().map(hash),
            tokenizer,
            memory,
            usable_slots: limits.usable_slots(),
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
    Some(String::from_utf8_lossy(&token_bytes(Some(tokenizer), first)).into_owned())
}

/// The model that `from` means, and with `checkpoints` the run whose others can be asked for.
pub(super) fn named_by(from: Option<&Path>, checkpoints: bool) -> Result<Served> {
    let found = run_folder::find(from)?;
    let folder = found.folder.canonicalize().unwrap_or_else(|_| found.folder.clone());
    let is_named = from.and_then(|from| from.canonicalize().ok()).is_some_and(|from| from == folder);
    let run = folder.parent().filter(|parent| parent.ends_with("checkpoints")).and_then(Path::parent);
    let name = match run {
        Some(run) if is_named => at_step(run, &folder),
        Some(run) => last_name(run),
        None => last_name(&folder),
    };
    let named = vec![Named { name, folder: found.folder }];
    if !checkpoints {
        return Ok(Served { named, run: None });
    }
    let Some(run) = run else {
        bail!(UsageError::new("--checkpoints: this is no run, whose checkpoints could be served"))
    };
    run_folder::checkpoints(run)?;
    Ok(Served { named, run: Some(run.to_owned()) })
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
    use std::thread;

    use super::super::tests::{checkpoint, tokenizer};
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
            named_by(Some(from), true).unwrap().all().into_iter().map(|named| named.name).collect()
        };
        assert_eq!(names(&run), ["mine", "mine@5", "mine@10"]);
        assert_eq!(names(&run.join("checkpoints/step-00000010")), ["mine@10", "mine@5"]);
        // A run that goes on saves others and removes some.
        let served = named_by(Some(&run), true).unwrap();
        let checkpoints = run.join("checkpoints");
        std::fs::rename(checkpoints.join("step-00000005"), checkpoints.join("step-00000015")).unwrap();
        let names: Vec<String> = served.all().into_iter().map(|named| named.name).collect();
        assert_eq!(names, ["mine", "mine@10", "mine@15"]);
    }

    fn models_of(folder: &Path, cache_bytes: usize, most_bytes: usize) -> Result<Models> {
        checkpoint(folder, &tokenizer());
        let named = ["a", "b"].map(|name| Named { name: name.to_owned(), folder: folder.to_owned() }).to_vec();
        let loading =
            Loading { device: Device::flex(), weights: WeightType::F32, tokens_per_step: 16, cache_bytes, most_bytes };
        Models::new(Served { named, run: None }, loading)
    }

    fn get(models: &Models, name: &str) -> Result<Arc<Model>, ApiError> {
        let (named, turn) = (models.named(Some(name))?, Arc::clone(&models.turn).try_lock_owned().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(models.room(&named, Instant::now() + MOST_WAIT))?;
        models.get(&named, turn)
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
    fn one_that_is_at_work_is_there_for_others_and_who_needs_its_memory_is_told_to_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let models = models_of(folder.path(), 1 << 20, 1 << 20).unwrap();
        let first = get(&models, "a").unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| get(&models, "b").err().unwrap().body()["error"]["code"].clone());
            thread::sleep(10 * LOOKING);
            let found = models.in_memory(&models.named(Some("a")).unwrap());
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
        let error = models_of(folder.path(), 1000, 1 << 30).unwrap().first().err().unwrap().to_string();
        assert!(error.starts_with("--cache-mib 0: two texts of 64 tokens"), "{error}");
    }
}
