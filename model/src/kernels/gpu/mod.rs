//! Our kernels for GPUs, in CubeCL: one source for CUDA and for every device behind wgpu.

// Without the feature `autodiff` nothing calls the backward passes.
#![cfg_attr(not(feature = "autodiff"), allow(dead_code))]

mod best;
mod dropout;
mod embedding;
mod linear_gelu;
mod matrix;
mod norm;
mod ops;
mod pointwise;
mod qk_norm;
mod rotary;
mod sum;
pub mod tensor;
