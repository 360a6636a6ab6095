//! LayerNorm and RMSNorm.

pub(crate) mod cpu_layer;
pub(crate) mod cpu_rms;
pub(crate) mod gpu;
