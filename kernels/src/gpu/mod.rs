//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.

pub mod adapters;
pub mod bandwidth;
pub mod compiling;
pub(crate) mod engine;
pub(crate) mod exponential;
pub(crate) mod finite;
pub(crate) mod launch;
pub mod products;
#[cfg(feature = "cuda")]
pub(crate) mod ptx;
pub(crate) mod sum;
pub mod tensor;
pub(crate) mod tensor_cores;
#[cfg(all(test, feature = "autodiff"))]
pub(crate) mod testing;
pub(crate) mod tile;
#[cfg(feature = "cuda")]
pub(crate) mod warpgroup;

pub use crate::attention::gpu::said as attention_said;

/// What an operation on a GPU is written with.
pub(crate) mod prelude {
    pub use burn::tensor::DType;
    pub use burn_cubecl::CubeBackend;
    pub use burn_cubecl::kernel::cast;
    pub use burn_cubecl::tensor::CubeTensor;
    pub use cubecl::prelude::*;

    pub(crate) use super::launch::{Grid, launch};
    pub use super::tensor::*;
    pub use crate::operation::Operation;
}
