//! The operations of a transformer: the same functions on every device.
//!
//! Each operation is a folder. `mod.rs` has the function and its formula in burn's tensor
//! operations, the reference that the kernels are tested against (for attention to the cache the
//! formula is in `tests.rs`). `cpu.rs` has one kernel of ours for the CPU, and its gradient;
//! `gpu.rs` a few for a GPU. There are three exceptions: a cast has no kernel of ours and the
//! head's loss reuses other kernels, so each is one file; argmax is for GPUs only. `operation.rs`
//! shows how an operation is declared.
//!
//! Below the operations are [`simd`] (the instruction sets that a kernel is compiled for), `gemm`
//! (matrix products), [`packed`] (weights packed for decoding), [`arena`] (memory on huge pages),
//! and what kernels share on the CPU (`cpu`) and on a GPU ([`gpu`]).
//!
//! This crate knows nothing of models, checkpoints or text.
//!
//! Invariants:
//! - Calls are recorded only on a device with automatic differentiation (feature `autodiff`).
//! - On the CPU the same input gives the same bits with any number of threads.

// GPU kernels are written in the subset of Rust that CubeCL translates; it lacks what these lints
// suggest.
#![allow(clippy::assign_op_pattern, clippy::manual_is_multiple_of, clippy::needless_range_loop)]
// Memory shared by threads, SIMD intrinsics, and kernel launches: each has a SAFETY comment.
#![allow(unsafe_code)]
// Without the feature `autodiff` nothing calls the backward passes; without `gpu` nothing asks for
// a tensor's type.
#![cfg_attr(not(all(feature = "autodiff", feature = "gpu")), allow(dead_code))]

pub mod arena;
#[cfg(feature = "gpu")]
mod argmax;
mod attention;
mod cached_attention;
mod cast;
mod cpu;
pub mod cross_entropy;
mod dropout;
mod embedding;
mod fill;
mod gelu;
mod gemm;
#[cfg(feature = "gpu")]
pub mod gpu;
#[cfg(not(feature = "gpu"))]
#[path = "no_gpu.rs"]
pub mod gpu;
mod halves;
mod head_loss;
mod heads;
pub mod limits;
mod linear;
mod norm;
mod operation;
pub mod optimizer;
pub mod packed;
mod qk_norm;
mod rotary;
pub mod simd;
mod swiglu;
#[cfg(test)]
mod testing;

use burn::tensor::Device;

#[cfg(feature = "gpu")]
pub use argmax::argmax;
pub use attention::{causal_attention, causal_attention_and_weights};
pub use cached_attention::{CachedAttention, CachedRows, Places, move_to_front};
pub use cast::cast;
pub use dropout::{DropoutMask, dropout};
pub use embedding::embed;
pub use gelu::gelu;
pub use gemm::multiplies_bf16;
#[cfg(not(feature = "gpu"))]
pub use gpu::argmax;
pub use head_loss::head_loss;
pub use heads::Heads;
pub use linear::{linear, linear_gelu, linear_onto, unembed};
pub use norm::{Norm, layer_norm, rms_norm};
pub use packed::{packed_linear, packed_linear_onto};
pub use qk_norm::qk_norm;
pub use rotary::{Rotary, rotate};
pub use swiglu::swiglu;

/// Whether `device` is the CPU (burn's flex), with or without automatic differentiation.
pub fn is_cpu(device: &Device) -> bool {
    device.clone().inner() == Device::flex()
}

/// Runs a decoding step, which consists of many short operations. On the CPU the pool's threads
/// stay awake between them.
pub fn decoding_step<R>(device: &Device, f: impl FnOnce() -> R) -> R {
    if is_cpu(device) { cpu::awake::with_threads_awake(f) } else { f() }
}

/// The operations as the papers write them, in burn's own tensor operations: the reference that the
/// kernels are tested against.
#[cfg(test)]
mod plain {
    pub use crate::attention::plain as causal_attention;
    pub use crate::dropout::plain as dropout;
    pub use crate::embedding::plain as embed;
    pub use crate::gelu::plain as gelu;
    pub use crate::linear::{plain_linear as linear, plain_unembed as unembed};
    pub use crate::norm::{plain_layer_norm as layer_norm, plain_rms_norm as rms_norm};
    pub use crate::qk_norm::plain as qk_norm;
    pub use crate::rotary::plain as rotate;
    pub use crate::swiglu::plain as swiglu;
}
