//! Prefill progress of a request.

use crate::sync::Arc;

/// Token counts of a request's prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All tokens.
    pub total: usize,
    /// Tokens that the cache already held.
    pub cached: usize,
    /// Tokens that the model has read or need not read, those in `cached` included.
    pub read: usize,
}

/// Progress callback. It runs on the engine's thread and must not block.
pub(super) type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;
