//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.
//!
//! CubeCL has its own terms:
//!
//! | here | in CUDA |
//! |---|---|
//! | unit, `UNIT_POS` | thread, its number in its block |
//! | plane | warp |
//! | cube, `CUBE_POS` | block, its number in the grid |
//! | `ABSOLUTE_POS` | a thread's number in the whole grid |
//! | `sync_cube`, `sync_plane` | `__syncthreads`, `__syncwarp` |
//! | `Shared` | shared memory of a block |
//! | `Array` | registers of a thread, zeros at first |
//! | `Vector<T, N>` | `N` numbers that are read or written at once, like a `float4` |
//!
//! `#[comptime]` arguments and `comptime!` expressions are constants of a compiled kernel. Kernels
//! are compiled at run time, once for every launched combination of these values and of the types
//! in `#[define]`. A `launch_unchecked` kernel does no bounds checks: the `SAFETY` comment at each
//! launch says why it stays inside its tensors.

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

pub use crate::attention::gpu::report as attention_report;

/// Imports for an operation on a GPU.
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
