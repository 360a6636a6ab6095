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

use burn::backend::flex::FlexTensor;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, backend_extension};
use burn::tensor::FloatDType;

use super::{CachedRows, DropoutMask, Heads};
use tensor::{contiguous, float32, new, stored, values};

/// The fused operations of a forward pass, with a backward where the feature `autodiff` is on.
#[cfg_attr(feature = "autodiff", backend_extension(Flex, Autodiff))]
#[cfg_attr(not(feature = "autodiff"), backend_extension(Flex))]
pub trait FusedOps: Backend {
    /// `x W + b`, `[batch, time, n_out]`.
    fn fused_linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;
    /// `x W`, `[batch, time, n_out]`.
    fn fused_linear_without_bias(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;
    /// `x Wᵀ`, `[batch, time, vocab]`.
    fn fused_unembed(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;
    /// LayerNorm over the last dimension.
    fn fused_layer_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;
    /// RMSNorm over the last dimension.
    fn fused_rms_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self>;
    /// RMSNorm of every head's query and key inside `qkv`.
    fn fused_qk_norm(
        qkv: FloatTensor<Self>,
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        epsilon: f32,
        heads: Heads,
    ) -> FloatTensor<Self>;
    /// Queries and keys inside `qkv` turned by angles whose `cos` and `sin` are `[time, head_size / 2]`, in place where nothing
    /// else holds them.
    fn fused_rotate(
        qkv: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        heads: Heads,
    ) -> FloatTensor<Self>;
    /// GELU, element by element.
    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// SwiGLU of the two halves of the last dimension.
    fn fused_swiglu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Causal attention: its output `[batch, time, n_head head_size]` and its weights `[batch * n_head, time, time]`.
    fn fused_causal_attention(
        qkv: FloatTensor<Self>,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
    /// Dropout by the mask that `mask` names.
    fn fused_dropout(x: FloatTensor<Self>, mask: DropoutMask) -> FloatTensor<Self>;
    /// The values in another type.
    fn fused_cast(x: FloatTensor<Self>, to: FloatDType) -> FloatTensor<Self>;
}

/// What only inference needs: it has no backward.
#[backend_extension(Flex)]
pub trait CachedOps: Backend {
    /// Attention of new positions to the cache; see [`super::CachedAttention::attend`].
    fn cached_attention(
        qkv: FloatTensor<Self>,
        keys: FloatTensor<Self>,
        values: FloatTensor<Self>,
        heads: Heads,
        rows: CachedRows,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

/// The gradients of [`FusedOps`], computed on the backend itself.
#[cfg(feature = "autodiff")]
pub trait FusedBackward: Backend {
    /// Gradients of `x`, `weight` and `bias`.
    fn fused_linear_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3];
    /// Gradients of `x` and `weight`.
    fn fused_linear_without_bias_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2];
    /// Gradients of `x` and `weight`.
    fn fused_unembed_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2];
    /// Gradients of `x`, `weight` and `bias`.
    fn fused_layer_norm_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        epsilon: f32,
    ) -> [FloatTensor<Self>; 3];
    /// Gradients of `x` and `weight`.
    fn fused_rms_norm_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        epsilon: f32,
    ) -> [FloatTensor<Self>; 2];
    /// Gradients of `qkv`, `query` and `key`.
    fn fused_qk_norm_backward(
        inputs: [FloatTensor<Self>; 3],
        dy: FloatTensor<Self>,
        epsilon: f32,
        heads: Heads,
    ) -> [FloatTensor<Self>; 3];
    /// Gradient of `qkv`.
    fn fused_rotate_backward(
        dy: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        heads: Heads,
    ) -> FloatTensor<Self>;
    /// Gradient of `x`.
    fn fused_gelu_backward(x: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Gradient of `x`.
    fn fused_swiglu_backward(x: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Gradient of `qkv`, given the forward's attention weights.
    fn fused_causal_attention_backward(
        qkv: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> FloatTensor<Self>;
}

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

impl FusedOps for Flex {
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

    fn fused_unembed(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let (x, weight) = (float32(x), float32(weight));
        let [vocab, n_embd] = weight.layout().shape().dims::<2>();
        // In float32 always: logits are few digits away from the loss.
        new(linear::unembed(values(&x), values(&weight), n_embd), with_width(&x, vocab))
    }

    fn fused_layer_norm(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, epsilon: f32) -> FlexTensor {
        let (x, weight, bias) = (contiguous(x), contiguous(weight), contiguous(bias));
        let y = layer_norm::forward(values(&x), values(&weight), values(&bias), epsilon);
        new(y, x.layout().shape().clone())
    }

    fn fused_rms_norm(x: FlexTensor, weight: FlexTensor, epsilon: f32) -> FlexTensor {
        let (x, weight) = (contiguous(x), contiguous(weight));
        new(rms_norm::forward(values(&x), values(&weight), epsilon), x.layout().shape().clone())
    }

    fn fused_qk_norm(qkv: FlexTensor, query: FlexTensor, key: FlexTensor, epsilon: f32, heads: Heads) -> FlexTensor {
        let dtype = qkv.dtype();
        let (qkv, query, key) = (float32(qkv), float32(query), float32(key));
        let y = rms_norm::forward_heads(values(&qkv), [values(&query), values(&key)], heads, epsilon);
        stored(y, qkv.layout().shape().clone(), dtype)
    }

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

    fn fused_causal_attention(qkv: FlexTensor, heads: Heads, dropout: Option<DropoutMask>) -> (FlexTensor, FlexTensor) {
        let dtype = qkv.dtype();
        let qkv = float32(qkv);
        let sizes = sizes(&qkv, heads);
        let (y, weights) = attention::forward(values(&qkv), sizes, dropout);
        let shape = with_width(&qkv, heads.query_width());
        let weights = stored(weights, [sizes.batch * heads.n_head, sizes.time, sizes.time], dtype);
        (stored(y, shape, dtype), weights)
    }

    fn fused_dropout(x: FlexTensor, mask: DropoutMask) -> FlexTensor {
        let x = contiguous(x);
        new(dropout::apply(values(&x), mask), x.layout().shape().clone())
    }

    fn fused_cast(x: FlexTensor, to: FloatDType) -> FlexTensor {
        tensor::cast(x, to)
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
impl FusedBackward for Flex {
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

    fn fused_unembed_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor) -> [FlexTensor; 2] {
        let dtype = x.dtype();
        let (x, weight, dy) = (float32(x), float32(weight), float32(dy));
        let [vocab, n_embd] = weight.layout().shape().dims::<2>();
        let (dx, dweight) = linear::unembed_backward(values(&x), values(&weight), values(&dy), n_embd);
        [stored(dx, x.layout().shape().clone(), dtype), new(dweight, [vocab, n_embd])]
    }

    fn fused_layer_norm_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor, epsilon: f32) -> [FlexTensor; 3] {
        let (x, weight, dy) = (contiguous(x), contiguous(weight), contiguous(dy));
        let (dx, dweight, dbias) = layer_norm::backward(values(&x), values(&weight), values(&dy), epsilon);
        let n = dweight.len();
        [new(dx, x.layout().shape().clone()), new(dweight, [n]), new(dbias, [n])]
    }

    fn fused_rms_norm_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor, epsilon: f32) -> [FlexTensor; 2] {
        let (x, weight, dy) = (contiguous(x), contiguous(weight), contiguous(dy));
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

    fn fused_causal_attention_backward(
        qkv: FlexTensor,
        weights: FlexTensor,
        dy: FlexTensor,
        heads: Heads,
        dropout: Option<DropoutMask>,
    ) -> FlexTensor {
        let dtype = qkv.dtype();
        let (qkv, weights, dy) = (float32(qkv), float32(weights), float32(dy));
        let dqkv = attention::backward(values(&qkv), values(&weights), values(&dy), sizes(&qkv, heads), dropout);
        stored(dqkv, qkv.layout().shape().clone(), dtype)
    }
}
