//! An engine's resource limits.

use ember_model::{Gpt, KvCache};

/// An engine's resource limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most prompt tokens in one step. While other rows decode, the engine takes fewer, so that
    /// their next token takes at most twice as long.
    pub tokens_per_step: usize,
    /// Positions that the KV cache has memory for, if the device can hold as many. A quarter is
    /// always free or garbage, so that the cache is compacted only rarely. The rest holds the
    /// running requests and, in the room they leave, earlier prompts.
    pub positions: usize,
}

impl Limits {
    /// Positions available to requests. A larger request runs alone, and the cache grows for it.
    pub fn usable_positions(&self) -> usize {
        (self.positions - self.positions / 4).max(1)
    }

    /// With no more positions than a cache on the model's device can hold.
    pub(super) fn on_device_of(self, model: &Gpt) -> Self {
        let most = KvCache::most_slots(model.config().heads(), &model.device());
        Self { positions: self.positions.min(most), ..self }
    }
}
