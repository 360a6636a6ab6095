//! What a server has: models, places for requests, and counts of what was done.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Instant;

use ember_cli::terminal;
use ember_model::device::DeviceChoice;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use super::listen::LONG_READERS;
use super::log::RequestLog;
use super::models::Models;
use super::parsed_request::MOST_TOLD;
use crate::sync::Mutex;

#[cfg(all(test, feature = "interleavings"))]
mod interleaving_tests;

/// Candidates that all answers hold at once, at most: a gigabyte. In tests one request may take all of
/// it.
const HELD_AT_ONCE: usize = if cfg!(test) { MOST_TOLD } else { 4 * MOST_TOLD };

/// All that requests have in common.
///
/// A request for text first takes a place in the queue, or is refused where there is none. Then it
/// waits for room for what its answer will hold, and for a desk, where it is written. It gives its
/// place back when all is told.
pub(super) struct Server {
    pub(super) models: Models,
    pub(super) counts: Counts,
    /// What `--from` was, for people who go on at a shell.
    pub(super) from: String,
    pub(super) log: Option<RequestLog>,
    /// The device that was asked for.
    pub(super) device: DeviceChoice,
    /// The kind of device that computes, and its name.
    pub(super) device_kind: String,
    pub(super) device_name: String,
    /// How it failed, if it did.
    pub(super) device_problem: OnceLock<String>,
    /// The seed of a request that sets none; without one it is any.
    pub(super) seed: Option<u64>,
    pub(super) began: Instant,
    /// The free places, of requests that wait or are at work.
    queue: Arc<Semaphore>,
    /// How many places there are.
    places: usize,
    /// The free desks, of requests that are at work.
    desks: Arc<Semaphore>,
    /// The free readers of long requests.
    long_readers: Arc<Semaphore>,
    /// Candidates that answers still have room for.
    room: Arc<Semaphore>,
    /// Who is at each desk, as `/slots` tells it.
    slots: Mutex<Vec<Option<Busy>>>,
    requests: AtomicU64,
    /// Other in every server, so that ids of two are not mixed up.
    salt: RandomState,
}

/// A request at work.
#[derive(Clone)]
pub(super) struct Busy {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) prompt_tokens: usize,
    pub(super) written: Arc<AtomicU64>,
}

/// What was done since the server began.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) waiting: AtomicU64,
    /// Tokens of prompts that were read, and that the cache held already.
    pub(super) prompt_tokens: AtomicU64,
    pub(super) cached_tokens: AtomicU64,
    pub(super) written_tokens: AtomicU64,
    /// Of them all but each request's first, which took `writing_micros`.
    pub(super) later_tokens: AtomicU64,
    pub(super) prompt_micros: AtomicU64,
    pub(super) writing_micros: AtomicU64,
    pub(super) longest: AtomicU64,
    /// Of speculative decoding: tokens guessed, guesses that came true, passes with guesses.
    pub(super) drafted: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) drafts: AtomicU64,
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A request's desk, which is free again when this is dropped.
pub(super) struct Desk {
    server: Arc<Server>,
    slot: usize,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Desk {
    fn drop(&mut self) {
        // Before the permit is given back: who has one finds a slot that is free.
        self.server.slots.lock().unwrap_or_else(PoisonError::into_inner)[self.slot] = None;
    }
}

impl Server {
    /// `at_once` requests are at work at the same time; `queue` more wait.
    pub(super) fn new(models: Models, at_once: usize, queue: usize) -> Self {
        Self {
            models,
            counts: Counts::default(),
            from: String::new(),
            device: DeviceChoice::Auto,
            device_kind: String::new(),
            device_name: String::new(),
            device_problem: OnceLock::new(),
            log: None,
            seed: None,
            began: Instant::now(),
            queue: Arc::new(Semaphore::new(at_once + queue)),
            places: at_once + queue,
            desks: Arc::new(Semaphore::new(at_once)),
            long_readers: Arc::new(Semaphore::new(LONG_READERS)),
            room: Arc::new(Semaphore::new(HELD_AT_ONCE)),
            slots: Mutex::new(vec![None; at_once]),
            requests: AtomicU64::new(0),
            salt: RandomState::new(),
        }
    }

    /// A place among the requests that are at work or wait.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.queue).try_acquire_owned().map_err(|_| {
            count(&self.counts.refused, 1);
            ApiError::busy()
        })
    }

    /// One of the few that read long requests, as soon as one is free.
    pub(super) async fn long_reader(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.long_readers).acquire_owned().await.ok()
    }

    /// Room for an answer with so many candidates, as soon as there is; at once for one with none.
    pub(super) async fn room(&self, candidates: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_many_owned(candidates.min(HELD_AT_ONCE) as u32).await.ok()
    }

    /// A desk, as soon as one is free.
    pub(super) async fn desk(self: Arc<Self>, busy: Busy) -> Option<Desk> {
        let permit = Arc::clone(&self.desks).acquire_owned().await.ok()?;
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            let free = slots.iter().position(Option::is_none)?;
            slots[free] = Some(busy);
            free
        };
        Some(Desk { server: self, slot, _permit: permit })
    }

    /// Whether nobody is at work or waits for a place.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.available_permits() == self.places
    }

    /// Who is at work, by place.
    pub(super) fn slots(&self) -> Vec<Option<Busy>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says that the device has failed: once on the terminal, then in every health answer.
    pub(super) fn device_has_failed(&self, problem: &str) {
        self.device_problem.get_or_init(|| {
            terminal::say(format_args!("{problem}; requests fail until the server is started again"));
            problem.to_owned()
        });
    }

    /// A number for an answer's name.
    pub(super) fn id(&self) -> String {
        format!("{:016x}", self.salt.hash_one(self.requests.fetch_add(1, Ordering::Relaxed)))
    }

    /// The seed of a request that sets none.
    pub(super) fn any_seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().hash_one(self.requests.load(Ordering::Relaxed)) >> 32)
    }
}
