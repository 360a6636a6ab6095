//! Attention of new positions to a key-value cache, for inference: what comes out has no gradient.

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

/// Attention to a cache, made ready once for all layers of one pass.
pub struct CachedAttention {
    places: Places,
    /// The rows' table on a GPU; on the CPU it is empty.
    table: Tensor<1, Int>,
}

impl CachedAttention {
    /// Attention for new positions on `device`.
    pub fn new(rows: CachedRows, device: &Device) -> Self {
        let table = if is_cpu(device) { Vec::new() } else { rows.table() };
        let length = table.len();
        let table = Tensor::from_data(TensorData::new(table, [length]), (device, DType::I32));
        Self { places: Places::Listed(rows), table }
    }

    /// Attention of a step that is recorded: one new position for each of `rows` rows, which
    /// `table`, laid out as [`CachedRows::table`], says the places of.
    pub fn recorded(rows: usize, longest: usize, table: Tensor<1, Int>) -> Self {
        Self { places: Places::InTable { rows, longest }, table }
    }

    /// Writes the keys and values of `qkv` `[1, new positions, (n_head + 2 n_kv_head) head_size]`
    /// into the new slots of the `cache`, keys and values `[n_kv_head, slots, head_size]`, then
    /// lets each new position attend to its row up to itself. Returns `[1, new positions, n_head
    /// head_size]` and the cache.
    pub fn attend(&self, qkv: Tensor<3>, cache: [Tensor<3>; 2], heads: Heads) -> (Tensor<3>, [Tensor<3>; 2]) {
        #[cfg(feature = "gpu")]
        if !is_cpu(&qkv.device()) {
            return gpu::attend(qkv, cache, self.table.clone(), heads, &self.places);
        }
        cpu::attend(qkv, cache, heads, &self.places)
    }
}
