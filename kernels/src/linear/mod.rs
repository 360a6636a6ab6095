//! Products with unpacked weights, as in training; inference on the CPU packs them
//! ([`crate::packed`]).

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
mod one_row;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;

use crate::operation::apply;
use crate::{DropoutMask, gelu};

/// `x W + b`: `x` is `[batch, time, n_in]`, `weight` `[n_in, n_out]` as GPT-2 stores it, `bias`
/// `[n_out]` if there is one.
pub fn linear(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<3> {
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    match bias {
        Some(bias) => apply(Linear, [x, weight, bias.into_dispatch()]),
        None => apply(Linear, [x, weight]),
    }
}

/// `gelu(x W + b)`, `[batch, time, n_out]`, with the arguments of [`linear`].
pub fn linear_gelu(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<3> {
    let Some(bias) = bias else { return gelu(linear(x, weight, None)) };
    apply(LinearGelu, [x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch()])
}

/// `residual + dropout(x W + b)`: the end of a branch, which is added to the residual stream.
/// `residual` is `[batch, time, n_out]` in float32, as is the result; `x` `[batch, time, n_in]` has
/// the type of the products.
pub fn linear_onto(
    residual: Tensor<3>,
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    dropout: Option<DropoutMask>,
) -> Tensor<3> {
    let (residual, x, weight) = (residual.into_dispatch(), x.into_dispatch(), weight.into_dispatch());
    match bias {
        Some(bias) => apply(LinearOnto { dropout }, [residual, x, weight, bias.into_dispatch()]),
        None => apply(LinearOnto { dropout }, [residual, x, weight]),
    }
}

/// `x Wᵀ`: logits `[batch, time, vocab]` of `x` `[batch, time, n_embd]` under an embedding table
/// `[vocab, n_embd]`; in float32 on the CPU, in the type of `x` elsewhere.
pub fn unembed(x: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    apply(Unembed, [x.into_dispatch(), weight.into_dispatch()])
}

/// With three inputs, the last the bias, or two.
#[derive(Clone, Debug)]
struct Linear;

#[derive(Clone, Debug)]
struct LinearGelu;

/// With four inputs, the last the bias, or three.
#[derive(Clone, Debug)]
struct LinearOnto {
    dropout: Option<DropoutMask>,
}

#[derive(Clone, Debug)]
pub(crate) struct Unembed;

/// `x W + b` for `x` `[batch, time, n_in]`.
#[cfg(test)]
pub fn plain_linear(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<3> {
    let y = x.matmul(weight.unsqueeze::<3>());
    match bias {
        Some(bias) => y + bias.unsqueeze::<3>(),
        None => y,
    }
}

/// `x Wᵀ` for `x` `[batch, time, n_embd]` and `weight` `[vocab, n_embd]`.
#[cfg(test)]
pub fn plain_unembed(x: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    x.matmul(weight.transpose().unsqueeze::<3>())
}
