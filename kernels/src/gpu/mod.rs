//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.
//!
//! CubeCL has words of its own:
//!
//! | here | in CUDA |
//! |---|---|
//! | unit, `UNIT_POS` | thread, its number in its block |
//! | plane | warp |
//! | cube, `CUBE_POS` | block, its number in the grid |
//! | `ABSOLUTE_POS` | a thread's number in the whole grid |
//! | `sync_cube`, `sync_plane` | `__syncthreads`, `__syncwarp` |
//! | `Shared`, `Array` | shared memory of a block, registers of a thread |
//! | `Vector<T, N>` | `N` numbers that are read or written at once, as a `float4` |
//!
//! What is `#[comptime]`, or stands in `comptime!`, is known when a kernel is compiled: that happens
//! while the program runs, once for every combination of such values and of the types in `#[define]`
//! that is launched. A kernel that is `launch_unchecked` reads and writes wherever it is told; that it
//! is told no place outside its tensors is what each `SAFETY` at a launch is about.

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
