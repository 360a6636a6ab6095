//! Weights packed for decoding.
//!
//! Each token reads every weight once and multiplies it once, so memory bandwidth is the limit, and
//! sequential reads reach it. So a matrix `[n_in, n_out]` is cut into panels of `PANEL` columns,
//! each contiguous in memory from its first row to its last; a product of a few rows keeps its
//! accumulators in registers while it reads a panel. Float32 is lossless. In bfloat16 a token reads
//! half as much. In 8 bits ([`WeightType::Int8`]) it reads a quarter: `GROUP` rows of a column
//! share a scale, as in llama.cpp's q8_0, 8.5 bits per weight.
//!
//! For inference on the CPU only: nothing here has a gradient.

mod cpu;
mod int8;
mod matrix;
mod pairs;
mod stretch;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;

use crate::cpu::tensor::{flex, float32, from_flex, tensor_of, values, with_width};
pub use matrix::{Packed, Source, WeightType};

/// `x W + b` with packed weights: `x` is `[batch, time, n_in]` in float32 on the CPU, as is the
/// result `[batch, time, n_out]`.
pub fn packed_linear(x: Tensor<3>, weight: &Packed) -> Tensor<3> {
    let x = float32(flex(x));
    from_flex(tensor_of(cpu::product(values(&x), weight, None), with_width(&x, weight.size[1])))
}

/// `residual + x W + b` with packed weights; see [`packed_linear`].
pub fn packed_linear_onto(residual: Tensor<3>, x: Tensor<3>, weight: &Packed) -> Tensor<3> {
    let (residual, x) = (float32(flex(residual)), float32(flex(x)));
    let y = cpu::product(values(&x), weight, Some(values(&residual)));
    from_flex(tensor_of(y, residual.layout().shape().clone()))
}
