//! Attention of new positions to a key-value cache, for inference: the output has no gradient.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "gpu")]
mod gpu_kernels;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
mod rows;
#[cfg(test)]
mod tests;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use crate::{Heads, is_cpu};
pub use rows::{CachedRows, Places};

#[cfg(feature = "gpu")]
pub(crate) use gpu::shared_memory;

/// Moves the contents of `slots` of a layer's keys or values, `[n_kv_head, slots, head_size]`, to
/// the first slots, in this order; on the CPU in place, if nothing shares the cache. The other
/// slots' contents are then meaningless.
pub fn move_to_front(cache: Tensor<3>, slots: &[u32]) -> Tensor<3> {
    let device = cache.device();
    if is_cpu(&device) {
        return cpu::move_to_front(cache, slots);
    }
    let [n_kv_head, _, head_size] = cache.dims();
    let index = TensorData::new(slots.iter().map(|&slot| slot as i32).collect(), [slots.len()]);
    let moved = cache.clone().select(1, Tensor::<1, Int>::from_data(index, (&device, DType::I32)));
    cache.slice_assign([0..n_kv_head, 0..slots.len(), 0..head_size], moved)
}

/// Attention to a cache, prepared once for all layers of one forward pass.
pub struct CachedAttention {
    places: Places,
    /// The rows' table on a GPU ([`CachedRows::table`]); on the CPU it is empty.
    table: Tensor<1, Int>,
    /// Slots that the cache must have; for a recorded step the caller sees to it.
    slots_needed: usize,
}

impl CachedAttention {
    /// Attention for new positions on `device`.
    pub fn new(rows: CachedRows, device: &Device) -> Self {
        let table = if is_cpu(device) { Vec::new() } else { rows.table() };
        let length = table.len();
        let table = Tensor::from_data(TensorData::new(table, [length]), (device, DType::I32));
        Self { slots_needed: rows.slots_needed(), places: Places::Listed(rows), table }
    }

    /// Attention of a recorded step: one new position for each of `rows` rows, whose slots are in
    /// `table`, laid out as [`CachedRows::table`].
    pub fn recorded(rows: usize, longest: usize, table: Tensor<1, Int>) -> Self {
        Self { places: Places::InTable { rows, longest }, table, slots_needed: 0 }
    }

    /// Writes the keys and values of `qkv` `[1, new positions, (n_head + 2 n_kv_head) head_size]`
    /// into the new slots of the `cache`, keys and values `[n_kv_head, slots, head_size]`, then
    /// lets each new position attend to its row up to itself. Returns `[1, new positions, n_head
    /// head_size]` and the cache.
    ///
    /// # Panics
    /// When a slot is not in the cache.
    pub fn attend(&self, qkv: Tensor<3>, cache: [Tensor<3>; 2], heads: Heads) -> (Tensor<3>, [Tensor<3>; 2]) {
        let has_slots = cache.iter().all(|tensor| self.slots_needed <= tensor.dims()[1]);
        assert!(has_slots, "a slot that the cache does not have");
        #[cfg(feature = "gpu")]
        if !is_cpu(&qkv.device()) {
            return gpu::attend(qkv, cache, self.table.clone(), heads, &self.places);
        }
        cpu::attend(qkv, cache, heads, &self.places)
    }
}
