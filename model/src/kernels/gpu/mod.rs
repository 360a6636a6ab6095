//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.

mod attention;
#[cfg(feature = "autodiff")]
mod attention_backward;
mod attention_dropout;
mod cached_attention;
mod cached_kernels;
mod engine;
pub mod tensor;
mod tensor_cores;
mod tile;

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

#[cfg(feature = "autodiff")]
use super::ops::AttentionBackward;
use super::ops::{AttentionOps, CachedOps};
use super::{CachedRows, DropoutMask, Heads};

impl AttentionOps for CubeBackend {
    fn fused_causal_attention(qkv: CubeTensor, heads: Heads, dropout: Option<DropoutMask>) -> (CubeTensor, CubeTensor) {
        attention::attend(qkv, heads, dropout)
    }
}

#[cfg(feature = "autodiff")]
impl AttentionBackward for CubeBackend {
    fn fused_causal_attention_backward(
        qkv: CubeTensor,
        y: CubeTensor,
        log_sums: CubeTensor,
        dy: CubeTensor,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> CubeTensor {
        attention_backward::backward(qkv, y, log_sums, dy, heads, dropout)
    }
}

impl CachedOps for CubeBackend {
    fn cached_attention(
        qkv: CubeTensor,
        keys: CubeTensor,
        values: CubeTensor,
        table: CubeTensor,
        heads: Heads,
        rows: CachedRows,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        cached_attention::attend(qkv, keys, values, table, heads, &rows)
    }
}
