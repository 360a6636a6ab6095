//! Continuous batching: many requests share one model and one cache.
//!
//! One thread owns the model. Every request runs its strategy in a thread of its own, as it would
//! alone, against a share of the engine ([`Request`]): where the strategy asks for logits, the share
//! asks the engine and waits. A step of the engine takes what all that wait have asked for through
//! the model together: first one token of every row that is being written, then pieces of prompts,
//! as long as that makes nobody's next token take more than twice as long. So all strategies
//! are served, and a long prompt holds nobody up for longer than a step.
//!
//! What was read of a prompt stays in the cache when its request is over, the least recently used
//! leaving first, and a request that begins alike reads on from there.
//!
//! On the CPU a request's numbers are the same bits alone and in company, whatever was cached and
//! however its prompt was cut: a row's numbers never depend on the rows beside it, and positions
//! that are read several at once come out the same in any pieces. One position by itself goes
//! another way through attention: only what was read in pieces of two and more is shared, and no
//! prompt is cut so that one position is left.

mod ask;
mod held;
#[cfg(all(test, feature = "interleavings"))]
mod interleaving_tests;
mod limits;
mod pace;
mod progress;
mod request;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::PoisonError;

use ember_model::{Gpt, GptConfig};

use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::mpsc::{Sender, channel};
use crate::sync::{Arc, RwLock, thread};
use ask::Message;
pub use limits::{Figures, Limits};
pub use progress::Progress;
pub use request::Request;
use worker::Worker;

/// A model that many requests share. It ends when it and all that were begun with it are dropped.
#[derive(Clone)]
pub struct Engine {
    to_worker: Sender<Message>,
    shape: Arc<GptConfig>,
    next: Arc<AtomicU64>,
    account: Account,
}

/// What an engine has done, which is still known when it has ended.
#[derive(Clone, Default)]
pub struct Account(Arc<RwLock<Figures>>);

impl Account {
    /// What it has done so far, and holds.
    pub fn figures(&self) -> Figures {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that it did, once the engine has ended and this is the last account of it.
    pub fn closed(&mut self) -> Option<Figures> {
        // To count who else has it would not be enough: what they did last need not be seen yet.
        let figures = Arc::get_mut(&mut self.0)?;
        Some(*figures.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Engine {
    /// Takes a model, which lives on a thread of the engine's from now on.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(model: Gpt, limits: Limits) -> io::Result<Self> {
        let (to_worker, messages) = channel();
        let shape = Arc::new(model.config().clone());
        let account = Account::default();
        let worker = Worker::new(model, limits, Arc::clone(&account.0));
        thread::Builder::new().spawn(move || worker.work(&messages))?;
        Ok(Self { to_worker, shape, next: Arc::default(), account })
    }

    /// The model's shape.
    pub fn config(&self) -> &GptConfig {
        &self.shape
    }

    /// What it has done and holds.
    pub fn figures(&self) -> Figures {
        self.account.figures()
    }

    /// The same, for a caller that outlives the engine.
    pub fn account(&self) -> Account {
        self.account.clone()
    }

    /// For one request; what sets `cancelled` ends it within a step, wherever it is.
    pub fn request(&self, cancelled: Arc<AtomicBool>) -> Request {
        Request::new(self.to_worker.clone(), Arc::clone(&self.shape), Arc::clone(&self.next), cancelled)
    }
}
