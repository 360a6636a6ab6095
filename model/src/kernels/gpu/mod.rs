//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.

pub mod tensor;
