//! An engine's resource limits, and its metrics.

/// An engine's resource limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most prompt tokens in one step. While other rows decode, the engine takes fewer, so that
    /// their next token takes at most twice as long.
    pub tokens_per_step: usize,
    /// Slots that the KV cache has memory for. A quarter is always free or garbage, so that the
    /// cache is compacted only rarely. The rest holds the running requests and, in the room they
    /// leave, earlier prompts.
    pub slots: usize,
}

impl Limits {
    /// Slots available to requests. A larger request runs alone, and the cache grows for it.
    pub fn usable_slots(&self) -> usize {
        (self.slots - self.slots / 4).max(1)
    }
}

/// An engine's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
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
    /// KV-cache slots in use.
    pub slots: usize,
}
