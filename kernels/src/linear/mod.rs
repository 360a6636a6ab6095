//! Products with weights.

pub(crate) mod cpu;
pub(crate) mod gpu;
pub(crate) mod gpu_gelu;
pub(crate) mod one_row;
