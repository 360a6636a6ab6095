//! SwiGLU.

pub(crate) mod cpu;
