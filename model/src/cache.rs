//! The key-value cache: what inference remembers so that a new token costs one position's work
//! instead of the whole text's. Training has no use for it, since it computes every position of a
//! known text at once.
//!
//! Keys and values stand in numbered slots, and a row of the batch is a list of slots, one for each
//! of its positions. So rows may have different lengths; rows that begin alike (the beams of one
//! prompt, several texts from it) share the slots of what they have in common; and to reorder, fork
//! or drop rows is to edit lists, not to copy keys and values. Slots that no list names any more
//! are won back all at once, when there are no others left.

use std::{iter, sync::Arc};

use burn::tensor::{Device, Tensor};

use crate::GptConfig;
use ember_kernels::arena::{HUGE_PAGE, Memory};
use ember_kernels::{self as kernels, CachedRows, Heads, is_cpu};

/// Keys and values of every layer for the positions that its rows have seen.
#[derive(Clone, Debug)]
pub struct KvCache {
    /// Each layer's keys and values, `[n_kv_head, slots, head_size]`, so that what a head reads
    /// lies side by side; taken out while the kernel writes to them, so that nothing shares them
    /// and they are written in place.
    layers: Vec<Option<[Tensor<3>; 2]>>,
    /// The slots of each row's positions.
    rows: Vec<Vec<u32>>,
    slots: usize,
    /// Slots from here on have never been used, or were won back.
    next: usize,
    /// How often slots were won back: whoever knows where the tensors lie must then look again.
    pub(crate) moves: usize,
    heads: Heads,
    device: Device,
}

impl KvCache {
    /// `rows` empty rows and memory for `slots` positions in all; it grows when that is not enough.
    pub fn new(config: &GptConfig, rows: usize, slots: usize, device: &Device) -> Self {
        Self::of(Empty::of_model(config, slots, device), config, rows)
    }

    /// As [`new`](Self::new), and the memory is taken from the system meanwhile, for callers that
    /// would be kept waiting when it is first written to.
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
        Self { layers, rows, slots, next: 0, moves: 0, heads: config.heads(), device: empty.device }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Positions that a row holds.
    pub fn len(&self, row: usize) -> usize {
        self.rows[row].len()
    }

    /// Positions there is memory for.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Positions that some of the rows hold, those that they share counted once.
    pub fn in_use(&self, rows: impl Iterator<Item = usize>) -> usize {
        let mut is_used = vec![false; self.slots];
        let mut new = |slot: &u32| !std::mem::replace(&mut is_used[*slot as usize], true);
        rows.flat_map(|row| &self.rows[row]).filter(|slot| new(slot)).count()
    }

    /// Forgets everything after a row's first `len` positions.
    pub fn truncate(&mut self, row: usize, len: usize) {
        self.rows[row].truncate(len);
    }

    /// Makes new rows of the old ones: new row i begins as old row `parents[i]`. No key and no
    /// value is copied.
    pub fn select(&mut self, parents: &[usize]) {
        let mut uses = vec![0; self.rows.len()];
        parents.iter().for_each(|&parent| uses[parent] += 1);
        let mut old = std::mem::take(&mut self.rows);
        let mut heir = |parent: usize| {
            uses[parent] -= 1;
            if uses[parent] == 0 { std::mem::take(&mut old[parent]) } else { old[parent].clone() }
        };
        self.rows = parents.iter().map(|&parent| heir(parent)).collect();
    }

    /// Gives `counts[row]` new positions to every row, and tells where all of them stand.
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
        let taking_part = self.rows.iter().zip(counts).filter(|(_, count)| **count > 0);
        let (slots, new) = taking_part.map(|(row, &count)| (row.clone(), count)).unzip();
        CachedRows { first_new, slots: Arc::new(slots), new: Arc::new(new) }
    }

    /// Positions that can be added while all tensors stay where they are.
    pub(crate) fn room(&self) -> usize {
        self.slots - self.next
    }

    /// Keys and values of every layer, shared: for a recorded step, which writes them where they
    /// lie.
    pub(crate) fn shared(&self) -> Vec<[Tensor<3>; 2]> {
        self.layers.iter().flatten().cloned().collect()
    }

    /// Attention of new positions `qkv` `[1, new positions, (n_head + 2 n_kv_head) head_size]` to
    /// this layer's cache, which keeps their keys and values.
    pub(crate) fn attend(&mut self, layer: usize, qkv: Tensor<3>, attention: &kernels::CachedAttention) -> Tensor<3> {
        let slot = &mut self.layers[layer];
        let Some(mut cache) = slot.take() else { unreachable!("put back below, in every call") };
        // A GPU keeps what the model computes in; until the first pass nobody has said what that
        // is.
        if !is_cpu(&self.device) {
            let dtype = qkv.dtype().into();
            cache = cache.map(|tensor| kernels::cast(tensor, dtype));
        }
        let (y, cache) = attention.attend(qkv, cache, self.heads);
        *slot = Some(cache);
        y
    }

    /// Moves the slots in use to the front, so that at least `free` are left behind them; into more
    /// memory where it must.
    fn compact(&mut self, free: usize) {
        let in_use = self.renumber();
        let needed = in_use.len() + free;
        // Twice what is needed: with dead branches coming at every step, memory is then moved
        // seldom.
        let slots = if needed > self.slots { 2 * needed } else { self.slots };
        if !in_use.is_empty() || slots > self.slots {
            self.move_to_front(&in_use, slots);
        }
        self.slots = slots;
        self.next = in_use.len();
        self.moves += 1;
    }

    /// Gives the slots in use new numbers from 0 on, in the order in which the rows name them, and
    /// lists their old ones, each once. Their keys and values are then to be moved.
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

    /// Moves the keys and values of the slots `in_use` to the first slots, of tensors that have `slots`
    /// of them: as many as before, or more.
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

/// The empty keys and values of all layers. A step reads the cache whole, as it reads the weights,
/// so on the CPU it too lies in one stretch of huge pages, if it fills one.
struct Empty {
    memory: Option<Arc<Memory>>,
    shape: [usize; 3],
    device: Device,
}

impl Empty {
    /// For a model, with at least one slot; on the device without automatic differentiation.
    fn of_model(config: &GptConfig, slots: usize, device: &Device) -> Self {
        Self::new(config.n_layer, slots.max(1), config.heads(), &device.clone().inner())
    }

    fn new(n_layer: usize, slots: usize, heads: Heads, device: &Device) -> Self {
        let shape = [heads.n_kv_head, slots, heads.head_size];
        let bytes = size_of::<f32>() * shape.iter().product::<usize>();
        let worth_it = is_cpu(device) && 2 * n_layer * bytes >= HUGE_PAGE;
        // A system that refuses so much at once may still give it piece by piece.
        let memory = worth_it.then(|| Memory::new(iter::repeat_n(bytes, 2 * n_layer)).ok()).flatten();
        Self { memory, shape, device: device.clone() }
    }

    /// Another one each time.
    fn tensor(&self) -> Tensor<3> {
        match &self.memory {
            Some(memory) => Tensor::from_data(memory.take().tensor_data(self.shape), &self.device),
            None => Tensor::zeros(self.shape, &self.device),
        }
    }
}
