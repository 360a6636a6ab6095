//! Attention of new positions to a key-value cache.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "gpu")]
mod gpu_kernels;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
mod plain;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use crate::{Heads, is_cpu};
use plain::GatheredRows;
pub use plain::{CachedRows, Places};

#[cfg(feature = "gpu")]
pub(crate) use gpu::shared_memory;

/// Attention to a cache, made ready once for all layers of one pass.
pub enum CachedAttention {
    /// Our kernels, and the rows' table on a GPU; on the CPU it is empty.
    Kernel(Places, Box<Tensor<1, Int>>),
    /// The plain formula, where gradients are recorded.
    Plain(Box<GatheredRows>),
}

impl CachedAttention {
    /// Attention for new positions on `device`.
    pub fn new(rows: CachedRows, device: &Device) -> Self {
        if device.is_autodiff() {
            return Self::Plain(Box::new(GatheredRows::new(&rows, device)));
        }
        let table = if is_cpu(device) { Vec::new() } else { rows.table() };
        let length = table.len();
        let table = Tensor::from_data(TensorData::new(table, [length]), (device, DType::I32));
        Self::Kernel(Places::Listed(rows), Box::new(table))
    }

    /// Attention of a step that is recorded: one new position for each of `rows` rows, which
    /// `table`, laid out as [`CachedRows::table`], says the places of.
    pub fn recorded(rows: usize, longest: usize, table: Tensor<1, Int>) -> Self {
        Self::Kernel(Places::InTable { rows, longest }, Box::new(table))
    }

    /// Writes the keys and values of `qkv` `[1, new positions, (n_head + 2 n_kv_head) head_size]`
    /// into the new slots of the `cache`, keys and values `[n_kv_head, slots, head_size]`, then
    /// lets each new position attend to its row up to itself. Returns `[1, new positions, n_head
    /// head_size]` and the cache.
    pub fn attend(&self, qkv: Tensor<3>, cache: [Tensor<3>; 2], heads: Heads) -> (Tensor<3>, [Tensor<3>; 2]) {
        match self {
            Self::Plain(rows) => rows.attend(qkv, cache, heads),
            #[cfg(feature = "gpu")]
            Self::Kernel(places, table) if !is_cpu(&qkv.device()) => {
                gpu::attend(qkv, cache, (**table).clone(), heads, places)
            }
            Self::Kernel(places, _) => cpu::attend(qkv, cache, heads, places),
        }
    }
}
