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
mod metrics;
mod pace;
mod prefix_cache;
mod progress;
mod request;
#[cfg(test)]
mod tests;
mod worker;

use std::io;

use ember_model::{Gpt, GptConfig};

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::mpsc::{Sender, channel};
use crate::sync::{Arc, thread};
pub use limits::Limits;
use messages::Message;
pub use metrics::{Metrics, MetricsHandle};
pub use progress::Progress;
pub use request::Request;
use worker::Worker;

/// A model that many requests share. Its thread ends when all clones and requests are dropped.
#[derive(Clone)]
pub struct Engine {
    to_worker: Sender<Message>,
    shape: Arc<GptConfig>,
    /// The number for the next set of rows, counted over all requests.
    next_number: Arc<AtomicU64>,
    metrics: MetricsHandle,
    has_ended: Arc<AtomicBool>,
}

impl Engine {
    /// Starts an engine's thread, which owns the model from now on.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(model: Gpt, limits: Limits) -> io::Result<Self> {
        let (to_worker, messages) = channel();
        let shape = Arc::new(model.config().clone());
        let (metrics, has_ended) = (MetricsHandle::default(), Arc::new(AtomicBool::new(false)));
        let worker = Worker::new(model, limits, metrics.clone(), Arc::clone(&has_ended));
        thread::Builder::new().spawn(move || worker.work(&messages))?;
        Ok(Self { to_worker, shape, next_number: Arc::default(), metrics, has_ended })
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
    pub fn metrics(&self) -> Metrics {
        self.metrics.metrics()
    }

    /// A handle to the metrics that outlives the engine.
    pub fn metrics_handle(&self) -> MetricsHandle {
        self.metrics.clone()
    }

    /// Opens a request. Setting `cancelled` ends it within a step.
    pub fn request(&self, cancelled: Arc<AtomicBool>) -> Request {
        Request::new(self.to_worker.clone(), Arc::clone(&self.shape), Arc::clone(&self.next_number), cancelled)
    }
}
