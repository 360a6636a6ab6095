//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.

// Without the feature `autodiff` nothing calls the backward passes.
#![cfg_attr(not(feature = "autodiff"), allow(dead_code))]
// A kernel is written in the part of Rust that CubeCL translates, which lacks what these lints ask for.
#![allow(clippy::assign_op_pattern, clippy::manual_is_multiple_of, clippy::needless_range_loop)]

mod attention;
#[cfg(feature = "autodiff")]
mod attention_backward;
mod best;
mod cached_attention;
mod cached_kernels;
mod dropout;
mod embedding;
mod engine;
pub mod limits;
mod linear_gelu;
mod matrix;
mod norm;
mod ops;
mod pointwise;
mod qk_norm;
mod rotary;
mod sum;
pub mod tensor;
mod tensor_cores;
mod tile;

pub use engine::said as attention_said;
