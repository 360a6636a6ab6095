//! The key-value cache: what inference remembers so that a new token costs one position's work instead of the whole text's.
//! Training has no use for it, since it computes every position of a known text at once.

use burn::tensor::{Device, Tensor};

use crate::GptConfig;
use crate::kernels;

/// Keys and values of every layer for the positions seen so far, in memory allocated once.
#[derive(Clone, Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    len: usize,
    capacity: usize,
}

/// One layer's keys and values, each `[batch, n_head, capacity, head_size]`; taken out while the kernel writes to them, so
/// that nothing shares them and they are written in place.
#[derive(Clone, Debug)]
struct LayerCache(Option<(Tensor<4>, Tensor<4>)>);

impl KvCache {
    /// An empty cache for `batch` rows of up to `capacity` positions.
    pub fn new(config: &GptConfig, batch: usize, capacity: usize, device: &Device) -> Self {
        let shape = [batch, config.n_head, capacity, config.head_size()];
        let empty = || Tensor::zeros(shape, device);
        let layers = (0..config.n_layer).map(|_| LayerCache(Some((empty(), empty())))).collect();
        Self { layers, len: 0, capacity }
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been seen yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets everything; the memory stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Forgets everything after the first `len` positions.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// # Panics
    /// When fewer than `time` positions are free: the caller decides what to forget, before it asks.
    pub(crate) fn reserve(&self, time: usize) {
        assert!(
            self.len + time <= self.capacity,
            "the cache holds {} of {} positions; {time} more do not fit",
            self.len,
            self.capacity
        );
    }

    /// Attention of new positions `qkv` `[batch, time, 3 n_embd]` to this layer's cache, which keeps their keys and values.
    pub(crate) fn attend(&mut self, layer: usize, qkv: Tensor<3>) -> Tensor<3> {
        let slot = &mut self.layers[layer].0;
        let Some((keys, values)) = slot.take() else { unreachable!("put back below, in every call") };
        let (y, keys, values) = kernels::cached_attention(qkv, keys, values, self.len);
        *slot = Some((keys, values));
        y
    }

    /// Counts `time` positions that every layer has now seen.
    pub(crate) fn advance(&mut self, time: usize) {
        self.len += time;
    }
}
