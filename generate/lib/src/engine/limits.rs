//! What an engine may use, and what it has done.

/// What an engine may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most tokens of prompts that go through the model in one step. While others are written the
    /// engine takes fewer: as many as make their next token take twice as long to come.
    pub tokens_per_step: usize,
    /// Positions that the cache has memory for. A quarter of them is always free or left behind, so
    /// that memory is tidied up seldom; the rest holds requests at work and, in what they leave
    /// free, prompts that were read before.
    pub slots: usize,
}

impl Limits {
    /// Positions that requests can have: a larger one is taken alone, and the cache grows for it.
    pub fn usable_slots(&self) -> usize {
        (self.slots - self.slots / 4).max(1)
    }
}

/// What an engine has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Steps, each one pass through the model.
    pub steps: u64,
    /// Tokens that went through the model.
    pub tokens: u64,
    /// Tokens that did not have to, since the cache held them from another request.
    pub cached_tokens: u64,
    /// Requests at work.
    pub running: usize,
    /// Requests that wait for room in the cache.
    pub waiting: usize,
    /// Positions in the cache that are in use.
    pub slots: usize,
}
