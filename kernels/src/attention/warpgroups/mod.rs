//! Causal attention and its gradient by Hopper's warpgroup instructions, for heads of 64. The
//! algorithm is that of [`gpu_forward`](super::gpu_forward) and
//! [`gpu_backward`](super::gpu_backward), but scores never leave the registers: each unit has those
//! of two rows, which it shares with three others, and the weights are already in the register
//! layout of the next product's factor ([Shah et al. 2024](https://arxiv.org/abs/2407.08608),
//! section 3). Meanwhile the next tiles are copied into shared memory.

mod backward;
mod forward;
mod tile;

pub use backward::backward;
pub use forward::attend_into;

use crate::gpu::prelude::*;
use crate::gpu::warpgroup::{NUMBERS, is_hopper};

/// Whether these kernels support these inputs on this device.
pub fn supports(qkv: &CubeTensor, head_size: usize) -> bool {
    is_hopper(&qkv.client) && [DType::F16, DType::BF16].contains(&qkv.dtype) && head_size == NUMBERS
}
