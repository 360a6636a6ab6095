//! GPT-2's GELU, the tanh approximation of [Hendrycks and Gimpel
//! 2016](https://arxiv.org/abs/1606.08415), section 2.
//!
//! The kernels write it with a sigmoid: `(1 + tanh(u)) / 2 = 1 / (1 + e^(-2u))`.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;

use crate::operation::apply;

/// `2 sqrt(2 / pi)`, so that the exponent of the sigmoid is `-(A x + A B x^3)`.
const A: f32 = 1.595_769;
/// The paper's factor of `x^3`.
const B: f32 = 0.044_715;

/// GELU of every value of `x` `[batch, time, width]`, in the shape and type of `x`.
pub fn gelu(x: Tensor<3>) -> Tensor<3> {
    apply(Gelu, [x.into_dispatch()])
}

#[derive(Clone, Debug)]
struct Gelu;

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
#[cfg(test)]
pub fn plain(x: Tensor<3>) -> Tensor<3> {
    let inner = (x.clone() + x.clone().powi_scalar(3) * 0.044715) * (2.0 / std::f64::consts::PI).sqrt();
    x * 0.5 * (inner.tanh() + 1.0)
}
