//! Attention of new positions to a key-value cache.

pub(crate) mod cpu;
pub(crate) mod gpu;
pub(crate) mod gpu_kernels;
