//! State of the server: models, queue and slots for requests, and counters.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Instant;

use ember_cli::terminal;
use ember_model::device::DeviceChoice;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::Object;
use super::error::ApiError;
use super::listen::{CONVERSATION_READERS, LONG_READERS};
use super::log::RequestLog;
use super::models::Models;
use super::parsed_request::MAX_CANDIDATES;
use crate::sync::Mutex;

#[cfg(all(test, feature = "interleavings"))]
mod interleaving_tests;

/// Most candidates that all answers hold at once: about a gigabyte. In tests one request may take
/// all of it.
const MAX_HELD_CANDIDATES: usize = if cfg!(test) { MAX_CANDIDATES } else { 4 * MAX_CANDIDATES };

/// State shared by all requests.
///
/// A request for text first enters the queue, or is refused if the queue is full. Then it waits for
/// memory for its answer, and for a slot to generate in. It leaves the queue when its whole answer
/// is sent.
pub(super) struct Server {
    pub(super) models: Models,
    pub(super) counts: Counts,
    pub(super) setup: Setup,
    /// The error of the device, once it has failed.
    pub(super) device_problem: OnceLock<String>,
    pub(super) began: Instant,
    /// Free places in the queue, which counts waiting and active requests.
    queue: Arc<Semaphore>,
    /// All places in the queue.
    capacity: usize,
    /// Cloned by every request in progress, of any route.
    in_progress: Arc<()>,
    /// Free slots for active requests.
    free_slots: Arc<Semaphore>,
    /// Free readers for long requests, and for conversations.
    long_readers: Arc<Semaphore>,
    conversation_readers: Arc<Semaphore>,
    /// Candidates for which memory is left.
    free_candidates: Arc<Semaphore>,
    /// The active request of each slot, for `/slots`.
    slots: Mutex<Vec<Option<ActiveRequest>>>,
    requests: AtomicU64,
    /// Random per server, so that the ids of two servers differ.
    salt: RandomState,
}

/// What the server was started with, and on which device. Servers in tests have the default.
#[derive(Default)]
pub(super) struct Setup {
    /// The value of `--from`; the page shows it in commands to type at a shell.
    pub(super) from: String,
    pub(super) log: Option<RequestLog>,
    /// The seed of requests that set none; random if `None`.
    pub(super) seed: Option<u64>,
    /// The requested device.
    pub(super) device: DeviceChoice,
    /// The kind and name of the device in use.
    pub(super) device_kind: String,
    pub(super) device_name: String,
}

/// A request in a slot.
#[derive(Clone)]
pub(super) struct ActiveRequest {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) prompt_tokens: usize,
    pub(super) written: Arc<AtomicU64>,
}

/// Counters since the server started.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) waiting: AtomicU64,
    /// Tokens of prompts that were processed, and that the cache already held.
    pub(super) prompt_tokens: AtomicU64,
    pub(super) cached_tokens: AtomicU64,
    pub(super) written_tokens: AtomicU64,
    /// The same without each request's first token; they took `writing_micros`.
    pub(super) later_tokens: AtomicU64,
    pub(super) prompt_micros: AtomicU64,
    pub(super) writing_micros: AtomicU64,
    pub(super) longest: AtomicU64,
    /// Speculative decoding: tokens proposed, tokens accepted, passes that checked proposals.
    pub(super) drafted: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) drafts: AtomicU64,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A request's slot; dropping this frees it.
pub(super) struct Slot {
    server: Arc<Server>,
    index: usize,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Before the permit is released: whoever holds a permit must find a free slot.
        self.server.slots.lock().unwrap_or_else(PoisonError::into_inner)[self.index] = None;
    }
}

impl Server {
    /// `at_once` requests generate at the same time; `queue` more can wait.
    pub(super) fn new(models: Models, setup: Setup, at_once: usize, queue: usize) -> Self {
        Self {
            models,
            counts: Counts::default(),
            setup,
            device_problem: OnceLock::new(),
            began: Instant::now(),
            queue: Arc::new(Semaphore::new(at_once + queue)),
            capacity: at_once + queue,
            in_progress: Arc::default(),
            free_slots: Arc::new(Semaphore::new(at_once)),
            long_readers: Arc::new(Semaphore::new(LONG_READERS)),
            conversation_readers: Arc::new(Semaphore::new(CONVERSATION_READERS)),
            free_candidates: Arc::new(Semaphore::new(MAX_HELD_CANDIDATES)),
            slots: Mutex::new(vec![None; at_once]),
            requests: AtomicU64::new(0),
            salt: RandomState::new(),
        }
    }

    /// A place in the queue, or an error if it is full.
    pub(super) fn enter_queue(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.queue).try_acquire_owned().map_err(|_| {
            count(&self.counts.refused, 1);
            ApiError::busy()
        })
    }

    /// Waits for one of the few readers of requests like this one, if reading it may take long.
    pub(super) async fn reader_for(&self, body: &Object) -> Option<OwnedSemaphorePermit> {
        // A conversation that takes long is one of the long requests, and waits only for these.
        let readers = match (body.takes_long(), body.is_conversation()) {
            (true, _) => &self.long_readers,
            (false, true) => &self.conversation_readers,
            (false, false) => return None,
        };
        Arc::clone(readers).acquire_owned().await.ok()
    }

    /// Waits for memory for an answer with so many candidates; 0 is granted at once.
    pub(super) async fn reserve_candidates(&self, candidates: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free_candidates).acquire_many_owned(candidates.min(MAX_HELD_CANDIDATES) as u32).await.ok()
    }

    /// Waits for a free slot.
    pub(super) async fn slot(self: Arc<Self>, active: ActiveRequest) -> Option<Slot> {
        let permit = Arc::clone(&self.free_slots).acquire_owned().await.ok()?;
        let index = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            let free = slots.iter().position(Option::is_none)?;
            slots[free] = Some(active);
            free
        };
        Some(Slot { server: self, index, _permit: permit })
    }

    /// A request counts as in progress until it drops this.
    pub(super) fn in_progress(&self) -> Arc<()> {
        Arc::clone(&self.in_progress)
    }

    /// Whether no request is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.available_permits() == self.capacity && Arc::strong_count(&self.in_progress) == 1
    }

    /// The active request of each slot.
    pub(super) fn slots(&self) -> Vec<Option<ActiveRequest>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports that the device has failed: once on the terminal, and in every `/health` answer.
    pub(super) fn device_has_failed(&self, problem: &str) {
        self.device_problem.get_or_init(|| {
            terminal::say(format_args!("{problem}; requests fail until the server is started again"));
            problem.to_owned()
        });
    }

    /// A unique id for an answer.
    pub(super) fn id(&self) -> String {
        format!("{:016x}", self.salt.hash_one(self.requests.fetch_add(1, Ordering::Relaxed)))
    }

    /// The seed of a request that sets none.
    pub(super) fn default_seed(&self) -> u64 {
        self.setup.seed.unwrap_or_else(|| RandomState::new().hash_one(self.requests.load(Ordering::Relaxed)) >> 32)
    }
}
