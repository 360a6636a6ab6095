//! SwiGLU ([Shazeer 2020](https://arxiv.org/abs/2002.05202), equation 6): `silu(gate) * up`, where
//! `silu(g) = g / (1 + e^(-g))`.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;

use crate::operation::apply;

/// SwiGLU of `x` `[batch, time, 2 n]`: the first half is the gate. Returns `[batch, time, n]`.
pub fn swiglu(x: Tensor<3>) -> Tensor<3> {
    apply(SwiGlu, [x.into_dispatch()])
}

#[derive(Clone, Debug)]
struct SwiGlu;

/// `silu(gate) * up` for the two halves of the last dimension.
#[cfg(test)]
pub fn plain(x: Tensor<3>) -> Tensor<3> {
    let n = x.dims()[2] / 2;
    burn::tensor::activation::silu(x.clone().narrow(2, 0, n)) * x.narrow(2, n, n)
}
