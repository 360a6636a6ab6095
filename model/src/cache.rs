//! The key-value cache: with it, inference computes one position for a new token instead of the
//! whole text. Training has no use for it: it computes all positions of a known text at once.
//!
//! Keys and values are stored in numbered slots, and a row of the batch is a list of slots, one per
//! position. So rows may have different lengths; rows with a common prefix (the beams of one
//! prompt, several texts from it) share its slots; and reordering, forking or dropping rows edits
//! lists and copies no keys or values. Slots that no list contains any more are reclaimed all at
//! once, when the free ones run out.

use std::{iter, sync::Arc};

use burn::tensor::{Device, Tensor};

use crate::GptConfig;
use ember_kernels::arena::{HUGE_PAGE, Memory};
use ember_kernels::{self as kernels, CachedRows, Heads, is_cpu};

/// Keys and values of every layer for all positions of its rows.
#[derive(Clone, Debug)]
pub struct KvCache {
    /// Each layer's keys and values, `[n_kv_head, slots, head_size]`, so that what a head reads is
    /// contiguous. `None` while the kernel writes: it takes them out, so that nothing shares them
    /// and they are written in place.
    layers: Vec<Option<[Tensor<3>; 2]>>,
    /// The slots of each row's positions.
    rows: Vec<Vec<u32>>,
    slots: usize,
    /// The first free slot: this and later ones were never used, or have been reclaimed.
    next: usize,
    /// How often slots were reclaimed: a recorded step from before is invalid.
    pub(crate) compactions: usize,
    heads: Heads,
    device: Device,
}

impl KvCache {
    /// `rows` empty rows and memory for `slots` positions in total, or for as many as the device can
    /// hold; it grows when it is full.
    pub fn new(config: &GptConfig, rows: usize, slots: usize, device: &Device) -> Self {
        Self::of(Empty::of_model(config, slots, device), config, rows)
    }

    /// As [`new`](Self::new), and takes the memory from the system in the background, for callers
    /// that cannot wait for it at the first writes.
    pub fn populated(config: &GptConfig, rows: usize, slots: usize, device: &Device) -> Self {
        let empty = Empty::of_model(config, slots, device);
        if let Some(memory) = &empty.memory {
            memory.populate();
        }
        Self::of(empty, config, rows)
    }

    fn of(empty: Empty, config: &GptConfig, rows: usize) -> Self {
        let layers = (0..config.n_layer).map(|_| Some([empty.tensor(), empty.tensor()])).collect();
        let rows = vec![Vec::new(); rows];
        let [_, slots, _] = empty.shape;
        Self { layers, rows, slots, next: 0, compactions: 0, heads: config.heads(), device: empty.device }
    }

    /// Most positions that a cache on `device` can hold: a kernel takes a layer's keys, or values,
    /// as one tensor. A cache that must hold more fails.
    pub fn most_slots(heads: Heads, device: &Device) -> usize {
        kernels::limits::values_at_once(usize::MAX, device) / heads.kv_width().max(1)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Number of positions in a row.
    pub fn len(&self, row: usize) -> usize {
        self.rows[row].len()
    }

    /// Number of positions that the memory can hold.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Number of slots that these rows use; a shared slot counts once.
    pub fn in_use(&self, rows: impl Iterator<Item = usize>) -> usize {
        let mut is_used = vec![false; self.slots];
        let mut new = |slot: &u32| !std::mem::replace(&mut is_used[*slot as usize], true);
        rows.flat_map(|row| &self.rows[row]).filter(|slot| new(slot)).count()
    }

    /// Drops everything after a row's first `len` positions.
    pub fn truncate(&mut self, row: usize, len: usize) {
        self.rows[row].truncate(len);
    }

    /// Replaces the rows: new row i continues old row `parents[i]`. No key or value is copied.
    pub fn select(&mut self, parents: &[usize]) {
        let mut uses = vec![0; self.rows.len()];
        parents.iter().for_each(|&parent| uses[parent] += 1);
        let mut old = std::mem::take(&mut self.rows);
        let mut take_or_clone = |parent: usize| {
            uses[parent] -= 1;
            if uses[parent] == 0 { std::mem::take(&mut old[parent]) } else { old[parent].clone() }
        };
        self.rows = parents.iter().map(|&parent| take_or_clone(parent)).collect();
    }

    /// Appends `counts[row]` new positions to every row, and returns the slots of all positions.
    pub(crate) fn reserve(&mut self, counts: &[usize]) -> CachedRows {
        let total: usize = counts.iter().sum();
        if self.next + total > self.slots {
            self.compact(total);
        }
        let first_new = self.next;
        for (row, &count) in self.rows.iter_mut().zip(counts) {
            row.extend(self.next as u32..(self.next + count) as u32);
            self.next += count;
        }
        let active = self.rows.iter().zip(counts).filter(|(_, count)| **count > 0);
        let (slots, new) = active.map(|(row, &count)| (row.clone(), count)).unzip();
        CachedRows { first_new, slots: Arc::new(slots), new: Arc::new(new) }
    }

    /// How many positions can be added before tensors move.
    pub(crate) fn room(&self) -> usize {
        self.slots - self.next
    }

    /// Keys and values of every layer, shared: for a recorded step, which writes them in place.
    pub(crate) fn shared(&self) -> Vec<[Tensor<3>; 2]> {
        self.layers.iter().flatten().cloned().collect()
    }

    /// Attention of new positions `qkv` `[1, new positions, (n_head + 2 n_kv_head) head_size]` to
    /// this layer's cache, which their keys and values are added to.
    pub(crate) fn attend(&mut self, layer: usize, qkv: Tensor<3>, attention: &kernels::CachedAttention) -> Tensor<3> {
        let slot = &mut self.layers[layer];
        let Some(mut cache) = slot.take() else { unreachable!("put back below, in every call") };
        // A GPU caches in the model's compute type, which is unknown until the first pass.
        if !is_cpu(&self.device) {
            let dtype = qkv.dtype().into();
            cache = cache.map(|tensor| kernels::cast(tensor, dtype));
        }
        let (y, cache) = attention.attend(qkv, cache, self.heads);
        *slot = Some(cache);
        y
    }

    /// Moves the slots in use to the front, so that at least `free` follow them; into larger
    /// tensors if necessary.
    fn compact(&mut self, free: usize) {
        let in_use = self.renumber();
        let needed = in_use.len() + free;
        let slots = match needed > self.slots {
            true => slots_to_grow_to(needed, Self::most_slots(self.heads, &self.device)),
            false => self.slots,
        };
        if !in_use.is_empty() || slots > self.slots {
            self.move_to_front(&in_use, slots);
        }
        self.slots = slots;
        self.next = in_use.len();
        self.compactions += 1;
    }

    /// Renumbers the slots in use from 0 on, in the order in which the rows list them, and returns
    /// their old numbers, each once. The caller then moves their keys and values.
    fn renumber(&mut self) -> Vec<u32> {
        const UNUSED: u32 = u32::MAX;
        let mut moved_to = vec![UNUSED; self.slots];
        let mut in_use = Vec::new();
        for slot in self.rows.iter_mut().flatten() {
            let target = &mut moved_to[*slot as usize];
            if *target == UNUSED {
                *target = in_use.len() as u32;
                in_use.push(*slot);
            }
            *slot = *target;
        }
        in_use
    }

    /// Moves the keys and values of the slots `in_use` to the first slots of tensors with `slots`
    /// slots: as many as before, or more.
    fn move_to_front(&mut self, in_use: &[u32], slots: usize) {
        let (heads, live) = (self.heads, in_use.len());
        let larger = (slots > self.slots).then(|| Empty::new(self.layers.len(), slots, heads, &self.device));
        let moved = |old: Tensor<3>| {
            let target = larger.as_ref().map(|empty| kernels::cast(empty.tensor(), old.dtype().into()));
            let in_front = if live > 0 { kernels::move_to_front(old, in_use) } else { old };
            let into = [0..heads.n_kv_head, 0..live, 0..heads.head_size];
            match target {
                Some(target) if live > 0 => target.slice_assign(into.clone(), in_front.slice(into)),
                Some(target) => target,
                None => in_front,
            }
        };
        for layer in &mut self.layers {
            *layer = layer.take().map(|cache| cache.map(moved));
        }
    }
}

/// Slots of a cache that needs more than it has, where a device can hold `most`. Twice what is
/// needed, if it can: compaction stays rare even when every step leaves dead branches.
fn slots_to_grow_to(needed: usize, most: usize) -> usize {
    (2 * needed).min(most).max(needed)
}

/// The empty keys and values of all layers. A step reads the whole cache, as it reads the weights,
/// so on the CPU the cache too lies in one arena of huge pages, if it fills one.
struct Empty {
    memory: Option<Arc<Memory>>,
    shape: [usize; 3],
    device: Device,
}

impl Empty {
    /// For a model, with at least one slot, and no more than the device can hold; on the device
    /// without automatic differentiation.
    fn of_model(config: &GptConfig, slots: usize, device: &Device) -> Self {
        let most = KvCache::most_slots(config.heads(), device);
        Self::new(config.n_layer, slots.min(most).max(1), config.heads(), &device.clone().inner())
    }

    fn new(n_layer: usize, slots: usize, heads: Heads, device: &Device) -> Self {
        let shape = [heads.n_kv_head, slots, heads.head_size];
        let bytes = size_of::<f32>() * shape.iter().product::<usize>();
        let worth_it = is_cpu(device) && 2 * n_layer * bytes >= HUGE_PAGE;
        // A system that refuses one large allocation may still grant separate ones.
        let memory = worth_it.then(|| Memory::new(iter::repeat_n(bytes, 2 * n_layer)).ok()).flatten();
        Self { memory, shape, device: device.clone() }
    }

    /// The next tensor; they do not share memory.
    fn tensor(&self) -> Tensor<3> {
        match &self.memory {
            Some(memory) => Tensor::from_data(memory.take().tensor_data(self.shape), &self.device),
            None => Tensor::zeros(self.shape, &self.device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_grows_to_twice_what_it_needs_or_to_what_a_device_holds() {
        assert_eq!([100, 20, 15, 10, 9].map(|most| slots_to_grow_to(10, most)), [20, 20, 15, 10, 10]);
        let config = GptConfig::new(10, 8, 1, 2, 8);
        let cache = KvCache::new(&config, 1, 100, &Device::flex());
        assert_eq!(cache.slots(), 100, "the CPU has no limit but memory");
    }
}
