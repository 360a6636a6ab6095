//! The models in memory: loaded on request, evicted when others need the memory.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use burn::tensor::Device;
use ember_cli::program::{Notes, UsageError};
use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::config::FolderSettings;
use ember_decoding::engine::{Engine, Limits, Metrics, MetricsHandle};
use ember_decoding::load::{EndTokens, load, opening};
use ember_decoding::stream::token_text;
use ember_model::{GptConfig, KvCache, WeightType, folder::read_config};
use tokio::sync::OwnedMutexGuard;
use tokio::time::sleep;
use xxhash_rust::xxh3::xxh3_64;

use super::constraints::Constraints;
use super::error::ApiError;
use super::names::{NamedFolder, Served};
use super::template::Template;

#[cfg(test)]
mod tests;

/// A loaded model.
pub(super) struct Model {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) engine: Engine,
    pub(super) tokenizer: Option<Tokenizer>,
    /// Hash of the vocabulary: for models with equal hashes, an id is the same token.
    pub(super) tokenizer_hash: Option<String>,
    pub(super) settings: FolderSettings,
    pub(super) end_tokens: Vec<u32>,
    pub(super) constraints: Constraints,
    pub(super) template: Option<Template>,
    /// Why the folder's template cannot be used, if it cannot.
    pub(super) template_refused: Option<String>,
    /// The name of the token that the tokenizer puts before texts, if any.
    pub(super) bos_token: Option<String>,
    /// The token that starts a new text, if the model has one.
    pub(super) opening: Option<u32>,
    pub(super) memory: Memory,
    /// Cache positions that a request may take.
    pub(super) usable_positions: usize,
    /// The same with the largest cache that the server and the device allow.
    pub(super) most_usable_positions: usize,
}

/// A model's memory.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    /// Positions in the cache.
    pub(super) positions: usize,
    /// Positions in the largest cache that the server and the device allow.
    most_positions: usize,
    /// Bytes of a cache position.
    pub(super) position_bytes: usize,
    weight_bytes: usize,
}

impl Memory {
    /// Bytes of the cache.
    pub(super) fn cache_bytes(self) -> usize {
        self.positions * self.position_bytes
    }

    fn bytes(self) -> usize {
        self.weight_bytes + self.cache_bytes()
    }
}

/// Options for loading every model.
#[derive(Clone)]
pub(super) struct LoadOptions {
    pub(super) device: Device,
    pub(super) weights: WeightType,
    pub(super) tokens_per_step: usize,
    /// Most bytes of each model's cache.
    pub(super) cache_bytes: usize,
    /// Most bytes of all models, weights and caches; a single model may have more.
    pub(super) max_bytes: usize,
}

impl LoadOptions {
    /// The memory that a model of this shape will take, on a device that holds `most_slots` of its
    /// cache positions.
    fn memory(&self, shape: &GptConfig, most_slots: usize) -> Result<Memory> {
        let (position_bytes, context) = (shape.kv_cache_bytes(1, 1).max(1), shape.context_length);
        // A text of the whole context must always fit.
        let least = 2 * context;
        ensure!(
            most_slots >= least,
            UsageError::new(format!(
                "the device can hold {most_slots} positions of the model's KV cache; two texts of the model's context of \
                 {context} tokens need {least}; use --device cpu"
            ))
        );
        let positions = self.cache_bytes / position_bytes;
        ensure!(
            positions >= least,
            UsageError::new(format!(
                "--cache-mib is {}; two texts of the model's context of {context} tokens need at least {}",
                self.cache_bytes >> 20,
                (least * position_bytes).div_ceil(1 << 20)
            ))
        );
        let weight_bytes = match self.weights {
            WeightType::F32 => 4.0,
            WeightType::Bf16 => 2.0,
            WeightType::Int8 => 8.5 / 8.0, // a byte, and its share of a 16-bit scale for 32 weights
        };
        let weight_bytes = (shape.parameters() as f64 * weight_bytes) as usize;
        let most_positions = most_slots.min(MAX_CONTEXTS * context);
        Ok(Memory { positions: positions.min(most_positions), most_positions, position_bytes, weight_bytes })
    }

    /// The cache positions of a model of this shape that the device can hold.
    fn most_slots(&self, shape: &GptConfig) -> usize {
        KvCache::most_slots(shape.heads(), &self.device)
    }
}

/// All served models.
pub(super) struct Models {
    served: Served,
    options: LoadOptions,
    /// Models in memory, least recently used first.
    loaded: Mutex<Vec<Arc<Model>>>,
    /// Held while a model loads, so that no model is loaded twice, and no two at once: memory may
    /// not suffice for both.
    load_lock: Arc<tokio::sync::Mutex<()>>,
    engine_metrics: Mutex<EngineMetrics>,
    /// Models whose unusable template was reported: once each, however often they are loaded.
    template_reported: Mutex<BTreeSet<String>>,
    /// Receives these reports.
    pub(super) notes: Notes,
    /// Start of the server, in seconds since 1970.
    pub(super) created: u64,
}

/// Metrics of all engines, including those of evicted models.
#[derive(Default)]
struct EngineMetrics {
    /// Those of engines that run.
    running: Vec<MetricsHandle>,
    /// Totals of engines that have ended.
    ended: Passes,
}

impl EngineMetrics {
    /// Moves engines that have ended since the last call from `running` to `ended`.
    fn settle(&mut self) {
        let Self { running, ended } = self;
        running.retain_mut(|handle| {
            let last = handle.final_metrics();
            *ended = last.map_or(*ended, |metrics| ended.plus(metrics));
            last.is_none()
        });
    }
}

/// Forward passes of models, and the tokens in them.
#[derive(Clone, Copy, Default)]
pub(super) struct Passes {
    pub(super) steps: u64,
    pub(super) tokens: u64,
}

impl Passes {
    fn plus(self, Metrics { steps, tokens, .. }: Metrics) -> Self {
        Self { steps: self.steps + steps, tokens: self.tokens + tokens }
    }
}

/// Largest cache, in context lengths. For small models the limit in bytes would allow far more than
/// is useful.
const MAX_CONTEXTS: usize = 256;

/// How often to check whether there is memory for a model.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How long a request waits for other models' memory; shorter in tests.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

impl Models {
    /// # Errors
    /// When two models have the same name.
    pub(super) fn new(served: Served, options: LoadOptions) -> Result<Self> {
        served.check_names()?;
        Ok(Self {
            served,
            options,
            loaded: Mutex::default(),
            load_lock: Arc::default(),
            engine_metrics: Mutex::default(),
            template_reported: Mutex::default(),
            notes: Notes::new(true),
            created: now(),
        })
    }

    /// All models available now.
    pub(super) fn all(&self) -> Vec<NamedFolder> {
        self.served.all()
    }

    /// The model of this name, or the default.
    ///
    /// # Errors
    /// When no model has this name.
    pub(super) fn find(&self, name: Option<&str>) -> Result<NamedFolder, ApiError> {
        self.served.find(name)
    }

    /// This model, if it is in memory; marks it as most recently used. A model whose engine has
    /// ended by a fault is dropped, so that it is loaded anew.
    pub(super) fn in_memory(&self, wanted: &NamedFolder) -> Option<Arc<Model>> {
        let mut loaded = lock(&self.loaded);
        let place = loaded.iter().position(|model| model.name == wanted.name)?;
        let model = loaded.remove(place);
        if model.engine.has_ended() {
            self.notes.say(format!("model {}: a fault of the program has ended it; it is loaded again", model.name));
            return None;
        }
        loaded.push(Arc::clone(&model));
        Some(model)
    }

    /// Waits, without blocking a thread, until no model is being loaded.
    pub(super) async fn load_lock(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.load_lock).lock_owned().await
    }

    /// Waits, without blocking a thread, until there is memory for this model, unless it is loaded
    /// already. The caller holds the load lock.
    ///
    /// # Errors
    /// When the model's folder is gone, or others still use the memory at `deadline`.
    pub(super) async fn wait_for_memory(&self, wanted: &NamedFolder, deadline: Instant) -> Result<(), ApiError> {
        if self.in_memory(wanted).is_some() {
            return Ok(());
        }
        if !wanted.folder.join("config.json").is_file() {
            return Err(ApiError::gone(&wanted.name));
        }
        let memory = || -> Result<Memory> {
            let shape = read_config(&wanted.folder)?;
            self.options.memory(&shape, self.options.most_slots(&shape))
        };
        let bytes = memory().map_err(|error| ApiError::internal(format!("{error:#}")))?.bytes();
        while !self.make_room(bytes) {
            if Instant::now() >= deadline {
                return Err(ApiError::no_room(&wanted.name));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// This model; loads it if it is not in memory. The caller holds the load lock, and has waited
    /// for memory.
    pub(super) fn get(&self, wanted: &NamedFolder, _lock: OwnedMutexGuard<()>) -> Result<Arc<Model>, ApiError> {
        if let Some(model) = self.in_memory(wanted) {
            return Ok(model);
        }
        let loaded = self.load(wanted);
        // Checked even after success: a file missing by then may have been taken for optional.
        if !wanted.folder.join("config.json").is_file() {
            return Err(ApiError::gone(&wanted.name));
        }
        let model = Arc::new(loaded.map_err(|error| ApiError::internal(format!("{error:#}")))?);
        lock(&self.loaded).push(Arc::clone(&model));
        Ok(model)
    }

    /// Evicts unused models, least recently used first, until a model of `bytes` fits. Returns
    /// whether it fits. Models in use stay, and nothing is evicted if evicting all unused models
    /// would not suffice.
    fn make_room(&self, bytes: usize) -> bool {
        let mut loaded = lock(&self.loaded);
        // No request can get a model while the lock is held.
        let is_unused = |model: &Arc<Model>| Arc::strong_count(model) == 1;
        let bytes_of = |model: &Arc<Model>| model.memory.bytes();
        let fits = |others: usize| others == 0 || others + bytes <= self.options.max_bytes;
        if !fits(loaded.iter().filter(|model| !is_unused(model)).map(bytes_of).sum()) {
            return false;
        }
        while !fits(loaded.iter().map(bytes_of).sum()) {
            let Some(unused) = loaded.iter().position(is_unused) else { return false };
            loaded.remove(unused);
        }
        let left = loaded.len();
        drop(loaded);
        // An evicted model keeps its memory until its engine has ended.
        self.engine_count() <= left
    }

    /// Number of models that occupy memory: loaded ones, and evicted ones whose engine still runs.
    pub(super) fn engine_count(&self) -> usize {
        let mut engine_metrics = lock(&self.engine_metrics);
        engine_metrics.settle();
        engine_metrics.running.len()
    }

    /// Type in which the matrices are stored.
    pub(super) fn weights(&self) -> WeightType {
        self.options.weights
    }

    /// Loads the default model.
    pub(super) fn load_default(&self) -> Result<Arc<Model>> {
        let model = Arc::new(self.load(self.served.default_folder())?);
        lock(&self.loaded).push(Arc::clone(&model));
        Ok(model)
    }

    /// The models in memory.
    pub(super) fn loaded(&self) -> Vec<Arc<Model>> {
        lock(&self.loaded).clone()
    }

    /// Passes since the server started.
    pub(super) fn passes(&self) -> Passes {
        let mut engine_metrics = lock(&self.engine_metrics);
        engine_metrics.settle();
        let EngineMetrics { running, ended } = &*engine_metrics;
        running.iter().fold(*ended, |passes, handle| passes.plus(handle.metrics()))
    }

    fn load(&self, NamedFolder { name, folder }: &NamedFolder) -> Result<Model> {
        let LoadOptions { device, weights, tokens_per_step, .. } = &self.options;
        let (model, tokenizer) = load(folder, *weights, true, || Ok(device.clone()))?;
        let shape = model.config().clone();
        let memory = self.options.memory(&shape, self.options.most_slots(&shape))?;
        let limits = |positions| Limits { tokens_per_step: *tokens_per_step, positions };
        let (template, template_refused) = self.template(name, Template::of_folder(folder, tokenizer.as_ref()));
        let model = Model {
            name: name.clone(),
            folder: folder.clone(),
            end_tokens: EndTokens::read(folder, tokenizer.as_ref(), shape.vocab_size)?.ids,
            constraints: Constraints::default(),
            settings: FolderSettings::read(folder)?,
            template,
            template_refused,
            bos_token: tokenizer.as_ref().and_then(bos_token),
            opening: opening(folder, tokenizer.as_ref(), shape.vocab_size)?,
            tokenizer_hash: tokenizer.as_ref().map(hash),
            tokenizer,
            memory,
            usable_positions: limits(memory.positions).usable_positions(),
            most_usable_positions: limits(memory.most_positions).usable_positions(),
            engine: Engine::start(model, limits(memory.positions)).context("cannot start a thread for the model")?,
        };
        lock(&self.engine_metrics).running.push(model.engine.metrics_handle());
        Ok(model)
    }

    /// The template of the model of this name, or why it cannot be used: the model can still
    /// continue texts.
    fn template(&self, name: &str, read: Result<Option<Template>>) -> (Option<Template>, Option<String>) {
        let error = match read {
            Ok(template) => return (template, None),
            Err(error) => format!("{error:#}"),
        };
        if lock(&self.template_reported).insert(name.to_owned()) {
            self.notes
                .say(format!("model {name}: its chat template cannot be used, so conversations are refused: {error}"));
        }
        (None, Some(error))
    }
}

/// Locks a mutex, ignoring poisoning.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The current time in seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// xxh3 of every id's bytes. It does not cover how texts are split, which files of different
/// formats may do differently.
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

/// The name of the token that the tokenizer puts before texts.
fn bos_token(tokenizer: &Tokenizer) -> Option<String> {
    let first = *tokenizer.before("", SpecialTokens::Text).first()?;
    Some(token_text(Some(tokenizer), first))
}
