//! An engine's metrics, and the handle by which other threads read them.

use std::sync::PoisonError;

use crate::sync::{Arc, RwLock};

/// An engine's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Steps; each is one forward pass.
    pub steps: u64,
    /// Tokens that went through the model.
    pub tokens: u64,
    /// Tokens that did not, since the cache held them from another request.
    pub cached_tokens: u64,
    /// Admitted requests.
    pub running: usize,
    /// Requests that wait for room in the cache.
    pub waiting: usize,
    /// KV-cache positions in use.
    pub positions: usize,
}

/// A handle to an engine's metrics that outlives the engine.
#[derive(Clone, Default)]
pub struct MetricsHandle(Arc<RwLock<Metrics>>);

impl MetricsHandle {
    /// The current metrics.
    pub fn metrics(&self) -> Metrics {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The final metrics, once the engine has ended and this is the last handle.
    pub fn final_metrics(&mut self) -> Option<Metrics> {
        // `Arc::strong_count` is not enough: it does not make the others' last writes visible.
        let metrics = Arc::get_mut(&mut self.0)?;
        Some(*metrics.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes these the current metrics.
    pub(super) fn publish(&self, metrics: Metrics) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = metrics;
    }
}
