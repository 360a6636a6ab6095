//! How far a request's prompts are read.

use crate::sync::Arc;

/// Tokens of a request's prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All of them.
    pub total: usize,
    /// Those that the cache held already.
    pub cached: usize,
    /// Those that the model has read or need not.
    pub read: usize,
}

/// Who is told of it, on the engine's thread: it must not wait.
pub(super) type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;
