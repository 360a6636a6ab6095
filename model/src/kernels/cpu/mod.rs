//! Our kernels for the CPU, as a burn backend extension for flex: each is one pass over contiguous rows, split over the
//! threads in pieces of fixed size, so that the numbers do not depend on how many threads there are.

// Without the feature `autodiff` nothing calls the backward passes.
#![cfg_attr(not(feature = "autodiff"), allow(dead_code))]

mod attention;
mod cached_attention;
mod convert;
mod dropout;
mod gelu;
mod layer_norm;
mod linear;
pub mod matrix;
mod rms_norm;
mod rotary;
mod swiglu;
pub mod tensor;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::FloatDType;

#[cfg(feature = "autodiff")]
use super::ops::{AttentionBackward, MatrixBackward, NormBackward, PointwiseBackward};
use super::ops::{AttentionOps, CachedOps, MatrixOps, NormOps, PointwiseOps};
use super::{CachedRows, DropoutMask, Heads};
use tensor::{contiguous, float32, new, stored, values};

fn sizes(qkv: &FlexTensor, heads: Heads) -> attention::Sizes {
    let [batch, time, _] = qkv.layout().shape().dims::<3>();
    attention::Sizes { batch, time, heads }
}

fn width(x: &FlexTensor) -> usize {
    let [_, _, width] = x.layout().shape().dims::<3>();
    width
}

/// Queries and keys of `qkv` turned by `turn`, where they lie.
fn turned(
    qkv: FlexTensor,
    cos: FlexTensor,
    sin: FlexTensor,
    heads: Heads,
    turn: fn(&mut [f32], &[f32], &[f32], Heads),
) -> FlexTensor {
    let dtype = qkv.dtype();
    let (mut qkv, cos, sin) = (float32(qkv), float32(cos), float32(sin));
    turn(tensor::values_mut(&mut qkv), values(&cos), values(&sin), heads);
    Flex::float_cast(qkv, dtype.into())
}

/// The shape of `x` with `n` in place of its last dimension.
fn with_width(x: &FlexTensor, n: usize) -> [usize; 3] {
    let [batch, time, _] = x.layout().shape().dims::<3>();
    [batch, time, n]
}

impl MatrixOps for Flex {
    fn fused_linear(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> FlexTensor {
        let dtype = x.dtype();
        let (x, weight, bias) = (float32(x), float32(weight), float32(bias));
        let y = linear::forward(values(&x), values(&weight), values(&bias));
        stored(y, with_width(&x, values(&bias).len()), dtype)
    }

    fn fused_linear_without_bias(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let dtype = x.dtype();
        let (x, weight) = (float32(x), float32(weight));
        let [_, n_out] = weight.layout().shape().dims::<2>();
        let y = linear::forward_without_bias(values(&x), values(&weight), n_out);
        stored(y, with_width(&x, n_out), dtype)
    }

    fn fused_linear_onto(
        residual: FlexTensor,
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        dropout: Option<DropoutMask>,
    ) -> FlexTensor {
        let mut branch = tensor::cast(Self::fused_linear(x, weight, bias), FloatDType::F32);
        if let Some(mask) = dropout {
            branch = Self::fused_dropout(branch, mask);
        }
        Flex::float_add(residual, branch)
    }

    fn fused_unembed(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let (x, weight) = (float32(x), float32(weight));
        let [vocab, n_embd] = weight.layout().shape().dims::<2>();
        // In float32 always: logits are few digits away from the loss.
        new(linear::unembed(values(&x), values(&weight), n_embd), with_width(&x, vocab))
    }
}

impl NormOps for Flex {
    fn fused_layer_norm(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        epsilon: f32,
        to: FloatDType,
    ) -> FlexTensor {
        let (x, weight, bias) = (contiguous(x), contiguous(weight), contiguous(bias));
        let y = layer_norm::forward(values(&x), values(&weight), values(&bias), epsilon);
        stored(y, x.layout().shape().clone(), to.into())
    }

    fn fused_rms_norm(x: FlexTensor, weight: FlexTensor, epsilon: f32, to: FloatDType) -> FlexTensor {
        let (x, weight) = (contiguous(x), contiguous(weight));
        stored(rms_norm::forward(values(&x), values(&weight), epsilon), x.layout().shape().clone(), to.into())
    }

    fn fused_qk_norm(qkv: FlexTensor, query: FlexTensor, key: FlexTensor, epsilon: f32, heads: Heads) -> FlexTensor {
        let dtype = qkv.dtype();
        let (qkv, query, key) = (float32(qkv), float32(query), float32(key));
        let y = rms_norm::forward_heads(values(&qkv), [values(&query), values(&key)], heads, epsilon);
        stored(y, qkv.layout().shape().clone(), dtype)
    }
}

impl PointwiseOps for Flex {
    fn fused_rotate(qkv: FlexTensor, cos: FlexTensor, sin: FlexTensor, heads: Heads) -> FlexTensor {
        turned(qkv, cos, sin, heads, rotary::turn)
    }

    fn fused_gelu(x: FlexTensor) -> FlexTensor {
        let dtype = x.dtype();
        let x = float32(x);
        stored(gelu::forward(values(&x)), x.layout().shape().clone(), dtype)
    }

    fn fused_swiglu(x: FlexTensor) -> FlexTensor {
        let dtype = x.dtype();
        let x = float32(x);
        let n = width(&x) / 2;
        stored(swiglu::forward(values(&x), n), with_width(&x, n), dtype)
    }

    fn fused_dropout(x: FlexTensor, mask: DropoutMask) -> FlexTensor {
        let x = contiguous(x);
        new(dropout::apply(values(&x), mask), x.layout().shape().clone())
    }

    fn fused_cast(x: FlexTensor, to: FloatDType) -> FlexTensor {
        tensor::cast(x, to)
    }
}

impl AttentionOps for Flex {
    fn fused_causal_attention(qkv: FlexTensor, heads: Heads, dropout: Option<DropoutMask>) -> (FlexTensor, FlexTensor) {
        let dtype = qkv.dtype();
        let qkv = float32(qkv);
        let sizes = sizes(&qkv, heads);
        let (y, denominators) = attention::forward(values(&qkv), sizes, dropout);
        let shape = with_width(&qkv, heads.query_width());
        (stored(y, shape, dtype), new(denominators, [sizes.batch * heads.n_head, sizes.time]))
    }
}

impl CachedOps for Flex {
    fn cached_attention(
        qkv: FlexTensor,
        keys: FlexTensor,
        cached_values: FlexTensor,
        heads: Heads,
        rows: CachedRows,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let dtype = qkv.dtype();
        let (qkv, mut keys, mut cached) = (float32(qkv), contiguous(keys), contiguous(cached_values));
        let y = cached_attention::attend(
            values(&qkv),
            tensor::values_mut(&mut keys),
            tensor::values_mut(&mut cached),
            heads,
            &rows,
        );
        (stored(y, with_width(&qkv, heads.query_width()), dtype), keys, cached)
    }
}

#[cfg(feature = "autodiff")]
impl MatrixBackward for Flex {
    fn fused_linear_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor) -> [FlexTensor; 3] {
        let dtype = x.dtype();
        let (x, weight, dy) = (float32(x), float32(weight), float32(dy));
        let [n_in, n_out] = weight.layout().shape().dims::<2>();
        let (dx, dweight, dbias) = linear::backward(values(&x), values(&weight), values(&dy), n_in);
        let shape = x.layout().shape().clone();
        // The weights' gradients go to float32 weights: they are not rounded on the way.
        [stored(dx, shape, dtype), new(dweight, [n_in, n_out]), new(dbias, [n_out])]
    }

    fn fused_linear_without_bias_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor) -> [FlexTensor; 2] {
        let dtype = x.dtype();
        let (x, weight, dy) = (float32(x), float32(weight), float32(dy));
        let [n_in, n_out] = weight.layout().shape().dims::<2>();
        let (dx, dweight) = linear::backward_without_bias(values(&x), values(&weight), values(&dy), n_in);
        [stored(dx, x.layout().shape().clone(), dtype), new(dweight, [n_in, n_out])]
    }

    fn fused_linear_onto_backward(
        x: FlexTensor,
        weight: FlexTensor,
        dy: FlexTensor,
        dropout: Option<DropoutMask>,
    ) -> [FlexTensor; 3] {
        let dtype = x.dtype();
        let dy = match dropout {
            Some(mask) => Self::fused_dropout(dy, mask),
            None => dy,
        };
        Self::fused_linear_backward(x, weight, tensor::cast(dy, dtype.into()))
    }

    fn fused_unembed_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor) -> [FlexTensor; 2] {
        let dtype = x.dtype();
        let (x, weight, dy) = (float32(x), float32(weight), float32(dy));
        let [vocab, n_embd] = weight.layout().shape().dims::<2>();
        let (dx, dweight) = linear::unembed_backward(values(&x), values(&weight), values(&dy), n_embd);
        [stored(dx, x.layout().shape().clone(), dtype), new(dweight, [vocab, n_embd])]
    }
}

#[cfg(feature = "autodiff")]
impl NormBackward for Flex {
    fn fused_layer_norm_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor, epsilon: f32) -> [FlexTensor; 3] {
        let (x, weight, dy) = (contiguous(x), contiguous(weight), float32(dy));
        let (dx, dweight, dbias) = layer_norm::backward(values(&x), values(&weight), values(&dy), epsilon);
        let n = dweight.len();
        [new(dx, x.layout().shape().clone()), new(dweight, [n]), new(dbias, [n])]
    }

    fn fused_rms_norm_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor, epsilon: f32) -> [FlexTensor; 2] {
        let (x, weight, dy) = (contiguous(x), contiguous(weight), float32(dy));
        let (dx, dweight) = rms_norm::backward(values(&x), values(&weight), values(&dy), epsilon);
        let n = dweight.len();
        [new(dx, x.layout().shape().clone()), new(dweight, [n])]
    }

    fn fused_qk_norm_backward(inputs: [FlexTensor; 3], dy: FlexTensor, epsilon: f32, heads: Heads) -> [FlexTensor; 3] {
        let dtypes = inputs.each_ref().map(FlexTensor::dtype);
        let ([qkv, query, key], dy) = (inputs.map(float32), float32(dy));
        let weights = [values(&query), values(&key)];
        let (dqkv, [dquery, dkey]) = rms_norm::backward_heads(values(&qkv), weights, values(&dy), heads, epsilon);
        let size = [heads.head_size];
        [
            stored(dqkv, qkv.layout().shape().clone(), dtypes[0]),
            stored(dquery, size, dtypes[1]),
            stored(dkey, size, dtypes[2]),
        ]
    }
}

#[cfg(feature = "autodiff")]
impl PointwiseBackward for Flex {
    fn fused_rotate_backward(dy: FlexTensor, cos: FlexTensor, sin: FlexTensor, heads: Heads) -> FlexTensor {
        turned(dy, cos, sin, heads, rotary::turn_back)
    }

    fn fused_gelu_backward(x: FlexTensor, dy: FlexTensor) -> FlexTensor {
        let dtype = x.dtype();
        let (x, dy) = (float32(x), float32(dy));
        stored(gelu::backward(values(&x), values(&dy)), x.layout().shape().clone(), dtype)
    }

    fn fused_swiglu_backward(x: FlexTensor, dy: FlexTensor) -> FlexTensor {
        let dtype = x.dtype();
        let (x, dy) = (float32(x), float32(dy));
        stored(swiglu::backward(values(&x), values(&dy), width(&dy)), x.layout().shape().clone(), dtype)
    }
}

#[cfg(feature = "autodiff")]
impl AttentionBackward for Flex {
    fn fused_causal_attention_backward(
        qkv: FlexTensor,
        y: FlexTensor,
        denominators: FlexTensor,
        dy: FlexTensor,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> FlexTensor {
        let dtype = qkv.dtype();
        let (qkv, y, dy) = (float32(qkv), float32(y), float32(dy));
        let given =
            attention::Given { qkv: values(&qkv), y: values(&y), denominators: values(&denominators), dy: values(&dy) };
        let dqkv = attention::backward(given, sizes(&qkv, heads), dropout);
        stored(dqkv, qkv.layout().shape().clone(), dtype)
    }
}
