//! Causal self-attention.

pub(crate) mod cpu;
pub(crate) mod factor;
pub(crate) mod gpu;
#[cfg(feature = "autodiff")]
pub(crate) mod gpu_backward;
