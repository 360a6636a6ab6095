//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.

pub(crate) mod cube_sum;
pub(crate) mod engine;
pub(crate) mod launch;
pub(crate) mod sum;
pub mod tensor;
pub(crate) mod tensor_cores;
#[cfg(all(test, feature = "autodiff"))]
pub(crate) mod testing;
pub(crate) mod tile;
pub(crate) mod widest_heads;

pub use crate::attention::gpu_choice::said as attention_said;
pub use crate::limits;
