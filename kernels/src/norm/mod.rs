//! LayerNorm and RMSNorm over the last dimension.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
#[cfg(test)]
mod tests;

use burn::tensor::{FloatDType, Tensor};

use crate::operation::apply;

/// Normalises each row of a float32 `x` `[batch, time, n_embd]` to mean 0 and variance 1, then
/// scales and shifts it ([Ba et al. 2016](https://arxiv.org/abs/1607.06450), equation 4).
pub fn layer_norm(x: Tensor<3>, weight: Tensor<1>, bias: Option<Tensor<1>>, norm: Norm) -> Tensor<3> {
    // Adding zeros costs next to nothing, and their gradient is never used.
    let bias = bias.unwrap_or_else(|| Tensor::zeros(weight.dims(), &weight.device()));
    let inputs = [x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch()];
    apply(LayerNorm(norm), inputs)
}

/// Divides each row of a float32 `x` `[batch, time, n_embd]` by its root mean square, then scales
/// it ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467), equation 4).
pub fn rms_norm(x: Tensor<3>, weight: Tensor<1>, norm: Norm) -> Tensor<3> {
    apply(RmsNorm(norm), [x.into_dispatch(), weight.into_dispatch()])
}

/// The parameters of a norm other than its tensors.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    epsilon: f32,
    to: FloatDType,
    begins_branch: bool,
}

impl Norm {
    /// A norm that adds `epsilon` to the mean square, and returns its result in type `to`.
    pub fn new(epsilon: f64, to: FloatDType) -> Self {
        Self { epsilon: epsilon as f32, to, begins_branch: false }
    }

    /// The same norm at the start of a residual branch: the branch's result is later added to `x`,
    /// and that sum has a gradient. Nothing else may use this `x`.
    pub fn of_branch(self) -> Self {
        Self { begins_branch: true, ..self }
    }
}

#[derive(Clone, Debug)]
struct LayerNorm(Norm);

#[derive(Clone, Debug)]
struct RmsNorm(Norm);

/// LayerNorm over the last dimension of `x` `[batch, time, n_embd]`.
#[cfg(test)]
pub fn plain_layer_norm(x: Tensor<3>, weight: Tensor<1>, bias: Option<Tensor<1>>, epsilon: f64) -> Tensor<3> {
    let y = plain_rms_norm(x.clone() - x.mean_dim(2), weight, epsilon); // a centred row's mean square is its variance
    match bias {
        Some(bias) => y + bias.unsqueeze::<3>(),
        None => y,
    }
}

/// RMSNorm over the last dimension of `x`, of any number of dimensions.
#[cfg(test)]
pub fn plain_rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let mean_square = x.clone().powi_scalar(2).mean_dim(D - 1); // [..., 1]
    x / (mean_square + epsilon).sqrt() * weight.unsqueeze::<D>()
}
