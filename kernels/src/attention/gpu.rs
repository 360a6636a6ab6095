//! Causal attention on a GPU.

use super::{CausalAttention, gpu_backward::backward, gpu_choice::engine_for, gpu_forward::attend};
use crate::gpu::prelude::*;

impl Operation<CubeBackend, 1> for CausalAttention {
    /// `qkv`, the output, and the logarithms of the rows' sums.
    type Kept = [CubeTensor; 3];

    fn forward(&self, [qkv]: [CubeTensor; 1]) -> ([CubeTensor; 1], Self::Kept) {
        let (y, log_sums) = attend(engine_for(&qkv, self.heads.head_size), qkv.clone(), self.heads, self.dropout);
        ([y.clone()], [qkv, y, log_sums])
    }

    fn backward(&self, [qkv, y, log_sums]: Self::Kept, dy: CubeTensor) -> [CubeTensor; 1] {
        [backward(engine_for(&qkv, self.heads.head_size), qkv, y, log_sums, dy, self.heads, self.dropout)]
    }
}
