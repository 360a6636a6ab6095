//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.

// Without the feature `autodiff` nothing calls the backward passes.
#![cfg_attr(not(feature = "autodiff"), allow(dead_code))]

mod attention;
#[cfg(feature = "autodiff")]
mod attention_backward;
mod attention_dropout;
mod best;
mod cached_attention;
mod cached_kernels;
mod dropout;
mod embedding;
mod engine;
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
