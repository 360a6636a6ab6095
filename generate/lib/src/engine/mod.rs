//! Continuous batching: many requests share one model and one cache.
//!
//! One thread owns the model. Every request runs its strategy in its own thread, as it would alone,
//! through a [`Request`]: when the strategy needs logits, it sends a query to the engine and waits.
//! A step of the engine batches all pending queries into one forward pass: first one token of every
//! decoding row, then pieces of prompts, as long as no row's next token takes more than twice as
//! long. So every strategy can be served, and a long prompt delays the others by one step at most.
//!
//! A prompt stays in the cache after its request has ended, until it is evicted as the least
//! recently used. A later request with the same prefix starts from there.
//!
//! On the CPU a request's numbers are the same bits alone and in any batch, whatever was cached and
//! however its prompt was split: a row's numbers never depend on the rows beside it, and positions
//! read several at a time give the same numbers in any pieces. A single position takes another path
//! through attention. So only positions read in pieces of two or more are shared, and no prompt is
//! split so that one position is left.

#[cfg(all(test, feature = "interleavings"))]
mod interleaving_tests;
mod limits;
mod messages;
mod pace;
mod prefix_cache;
mod progress;
mod request;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::PoisonError;

use ember_model::{Gpt, GptConfig};

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::mpsc::{Sender, channel};
use crate::sync::{Arc, RwLock, thread};
pub use limits::{Figures, Limits};
use messages::Message;
pub use progress::Progress;
pub use request::Request;
use worker::Worker;

/// A model that many requests share. Its thread ends when all clones and requests are dropped.
#[derive(Clone)]
pub struct Engine {
    to_worker: Sender<Message>,
    shape: Arc<GptConfig>,
    next: Arc<AtomicU64>,
    account: Account,
    has_ended: Arc<AtomicBool>,
}

/// A handle to an engine's metrics that outlives the engine.
#[derive(Clone, Default)]
pub struct Account(Arc<RwLock<Figures>>);

impl Account {
    /// The current metrics.
    pub fn figures(&self) -> Figures {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The final metrics, once the engine has ended and this is the last handle.
    pub fn closed(&mut self) -> Option<Figures> {
        // `Arc::strong_count` is not enough: it does not make the others' last writes visible.
        let figures = Arc::get_mut(&mut self.0)?;
        Some(*figures.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Engine {
    /// Starts an engine's thread, which owns the model from now on.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(model: Gpt, limits: Limits) -> io::Result<Self> {
        let (to_worker, messages) = channel();
        let shape = Arc::new(model.config().clone());
        let (account, has_ended) = (Account::default(), Arc::new(AtomicBool::new(false)));
        let worker = Worker::new(model, limits, Arc::clone(&account.0), Arc::clone(&has_ended));
        thread::Builder::new().spawn(move || worker.work(&messages))?;
        Ok(Self { to_worker, shape, next: Arc::default(), account, has_ended })
    }

    /// Whether a panic has ended its thread. Every request then fails with
    /// [`Error::EngineEnded`](crate::Error::EngineEnded).
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// The model's shape.
    pub fn config(&self) -> &GptConfig {
        &self.shape
    }

    /// The current metrics.
    pub fn figures(&self) -> Figures {
        self.account.figures()
    }

    /// A handle to the metrics that outlives the engine.
    pub fn account(&self) -> Account {
        self.account.clone()
    }

    /// Opens a request. Setting `cancelled` ends it within a step.
    pub fn request(&self, cancelled: Arc<AtomicBool>) -> Request {
        Request::new(self.to_worker.clone(), Arc::clone(&self.shape), Arc::clone(&self.next), cancelled)
    }
}
