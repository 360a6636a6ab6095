//! Our kernels for the CPU, as a burn backend extension for flex: each is one pass over contiguous rows, split over the
//! threads in pieces of fixed size, so that the numbers do not depend on how many threads there are.

// Without the feature `autodiff` nothing calls the backward passes.
#![cfg_attr(not(feature = "autodiff"), allow(dead_code))]

pub mod awake;
pub mod convert;
pub mod prefetch;
pub mod tensor;

pub use awake::with_threads_awake;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::{FloatTensorOps, ModuleOps};
use burn::tensor::{DType, FloatDType};

#[cfg(feature = "autodiff")]
use super::ops::{AttentionBackward, EmbeddingBackward, MatrixBackward, NormBackward, PointwiseBackward};
use super::ops::{AttentionOps, CachedOps, EmbeddingOps, MatrixOps, NormOps, PackedOps, PointwiseOps};
use super::{DropoutMask, Heads, Places};
use crate::linear::cpu::Added;
use crate::packed::Packed;
use crate::{
    attention::cpu as attention,
    cached_attention::cpu as cached_attention,
    dropout::cpu as dropout,
    embedding::cpu as embedding,
    gelu::cpu as gelu,
    linear::cpu as linear,
    norm::{cpu_layer as layer_norm, cpu_rms as rms_norm},
    packed::cpu as packed,
    rotary::cpu as rotary,
    swiglu::cpu as swiglu,
};
use tensor::{contiguous, float32, new, new_bf16, stored, values, values_bf16};

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

/// Whether it is stored in bfloat16, in which a product with it is then computed; float16 becomes float32 first.
fn is_bf16(tensor: &FlexTensor) -> bool {
    tensor.dtype() == DType::BF16
}

/// The tensor contiguous and in bfloat16.
fn bfloat16(tensor: FlexTensor) -> FlexTensor {
    contiguous(if is_bf16(&tensor) { tensor } else { tensor::cast(tensor, FloatDType::BF16) })
}

/// The sizes of a weight.
fn sizes_of(weight: &FlexTensor) -> [usize; 2] {
    weight.layout().shape().dims()
}

impl MatrixOps for Flex {
    fn fused_linear(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> FlexTensor {
        let [_, n_out] = sizes_of(&weight);
        let shape = with_width(&x, n_out);
        let bias = float32(bias);
        if is_bf16(&weight) {
            let (x, weight) = (bfloat16(x), contiguous(weight));
            let added = Added { bias: Some(values(&bias)), residual: None };
            return new_bf16(linear::times(values_bf16(&x), values_bf16(&weight), n_out, added), shape);
        }
        let dtype = x.dtype();
        let (x, weight) = (float32(x), float32(weight));
        stored(linear::forward(values(&x), values(&weight), values(&bias)), shape, dtype)
    }

    fn fused_linear_without_bias(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let [_, n_out] = sizes_of(&weight);
        let shape = with_width(&x, n_out);
        if is_bf16(&weight) {
            let (x, weight) = (bfloat16(x), contiguous(weight));
            return new_bf16(linear::times(values_bf16(&x), values_bf16(&weight), n_out, Added::default()), shape);
        }
        let dtype = x.dtype();
        let (x, weight) = (float32(x), float32(weight));
        stored(linear::forward_without_bias(values(&x), values(&weight), n_out), shape, dtype)
    }

    fn fused_linear_gelu(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> (FlexTensor, FlexTensor) {
        let h = Self::fused_linear(x, weight, bias);
        (Self::fused_gelu(h.clone()), h)
    }

    fn fused_linear_onto(
        residual: FlexTensor,
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        dropout: Option<DropoutMask>,
    ) -> FlexTensor {
        // Dropout is of the branch alone, which must then be there by itself.
        if let Some(mask) = dropout {
            let branch = tensor::cast(Self::fused_linear(x, weight, bias), FloatDType::F32);
            return Flex::float_add(residual, Self::fused_dropout(branch, mask));
        }
        let (residual, bias) = (float32(residual), float32(bias));
        let shape = residual.layout().shape().clone();
        let y = if is_bf16(&weight) {
            let (x, weight) = (bfloat16(x), contiguous(weight));
            let added = Added { bias: Some(values(&bias)), residual: Some(values(&residual)) };
            linear::times(values_bf16(&x), values_bf16(&weight), values(&bias).len(), added)
        } else {
            let (x, weight) = (float32(x), float32(weight));
            linear::forward_onto(values(&residual), values(&x), values(&weight), values(&bias))
        };
        new(y, shape)
    }

    fn fused_unembed(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let [vocab, n_embd] = sizes_of(&weight);
        let shape = with_width(&x, vocab);
        // Put out in float32 always: logits are few digits away from the loss.
        if is_bf16(&weight) {
            let (x, weight) = (bfloat16(x), contiguous(weight));
            return new(linear::times_transposed(values_bf16(&x), values_bf16(&weight), n_embd), shape);
        }
        let (x, weight) = (float32(x), float32(weight));
        new(linear::unembed(values(&x), values(&weight), n_embd), shape)
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
        let (dtype, shape) = (x.dtype(), x.layout().shape().clone());
        if dtype == DType::BF16 {
            return new_bf16(gelu::forward_bf16(values_bf16(&contiguous(x))), shape);
        }
        stored(gelu::forward(values(&float32(x))), shape, dtype)
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

impl EmbeddingOps for Flex {
    fn fused_embed(weight: FlexTensor, ids: FlexTensor) -> FlexTensor {
        Flex::embedding(weight, ids)
    }
}

impl AttentionOps for Flex {
    fn fused_causal_attention(qkv: FlexTensor, heads: Heads, dropout: Option<DropoutMask>) -> (FlexTensor, FlexTensor) {
        let dtype = qkv.dtype();
        let sizes = sizes(&qkv, heads);
        let shape = with_width(&qkv, heads.query_width());
        let (y, denominators) = if is_bf16(&qkv) {
            attention::forward(values_bf16(&contiguous(qkv)), sizes, dropout)
        } else {
            attention::forward(values(&float32(qkv)), sizes, dropout)
        };
        (stored(y, shape, dtype), new(denominators, [sizes.batch * heads.n_head, sizes.time]))
    }
}

impl PackedOps for Flex {
    fn packed_linear(x: FlexTensor, weight: Packed) -> FlexTensor {
        let x = float32(x);
        let [_, n_out] = weight.size();
        new(packed::product(values(&x), &weight, None), with_width(&x, n_out))
    }

    fn packed_linear_onto(residual: FlexTensor, x: FlexTensor, weight: Packed) -> FlexTensor {
        let (residual, x) = (float32(residual), float32(x));
        let y = packed::product(values(&x), &weight, Some(values(&residual)));
        new(y, residual.layout().shape().clone())
    }
}

impl CachedOps for Flex {
    fn cached_attention(
        qkv: FlexTensor,
        keys: FlexTensor,
        cached_values: FlexTensor,
        _table: FlexTensor,
        heads: Heads,
        places: Places,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let Places::Listed(rows) = places else { unreachable!("steps are recorded on GPUs alone") };
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

// The weights' gradients go to float32 weights: they are not rounded on the way.
#[cfg(feature = "autodiff")]
impl MatrixBackward for Flex {
    fn fused_linear_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor) -> [FlexTensor; 3] {
        let [_, n_out] = sizes_of(&weight);
        let dbias = if is_bf16(&weight) && dy.dtype() == DType::BF16 {
            linear::column_sums_bf16(values_bf16(&contiguous(dy.clone())), n_out)
        } else {
            linear::column_sums(values(&float32(dy.clone())), n_out)
        };
        let [dx, dweight] = Self::fused_linear_without_bias_backward(x, weight, dy);
        [dx, dweight, new(dbias, [n_out])]
    }

    fn fused_linear_without_bias_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor) -> [FlexTensor; 2] {
        let [n_in, n_out] = sizes_of(&weight);
        let shape = x.layout().shape().clone();
        if is_bf16(&weight) {
            let (x, weight, dy) = (bfloat16(x), contiguous(weight), bfloat16(dy));
            let (dx, dweight) = linear::backward(values_bf16(&x), values_bf16(&weight), values_bf16(&dy), n_in);
            return [new_bf16(dx, shape), new(dweight, [n_in, n_out])];
        }
        let dtype = x.dtype();
        let (x, weight, dy) = (float32(x), float32(weight), float32(dy));
        let (dx, dweight) = linear::backward(values(&x), values(&weight), values(&dy), n_in);
        [stored(dx, shape, dtype), new(dweight, [n_in, n_out])]
    }

    fn fused_linear_gelu_backward(inputs: [FlexTensor; 3], h: FlexTensor, dy: FlexTensor) -> [FlexTensor; 3] {
        let [x, weight, _bias] = inputs;
        Self::fused_linear_backward(x, weight, Self::fused_gelu_backward(h, dy))
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
        let [vocab, n_embd] = sizes_of(&weight);
        let shape = x.layout().shape().clone();
        let (dx, dweight) = if is_bf16(&weight) {
            let (x, weight, dy) = (bfloat16(x), contiguous(weight), bfloat16(dy));
            linear::unembed_backward(values_bf16(&x), values_bf16(&weight), values_bf16(&dy), n_embd)
        } else {
            let (x, weight, dy) = (float32(x), float32(weight), float32(dy));
            linear::unembed_backward(values(&x), values(&weight), values(&dy), n_embd)
        };
        [stored(dx, shape, dtype), new(dweight, [vocab, n_embd])]
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
        let (dtype, shape) = (x.dtype(), x.layout().shape().clone());
        if dtype == DType::BF16 {
            let (x, dy) = (contiguous(x), bfloat16(dy));
            return new_bf16(gelu::backward_bf16(values_bf16(&x), values_bf16(&dy)), shape);
        }
        let (x, dy) = (float32(x), float32(dy));
        stored(gelu::backward(values(&x), values(&dy)), shape, dtype)
    }

    fn fused_swiglu_backward(x: FlexTensor, dy: FlexTensor) -> FlexTensor {
        let dtype = x.dtype();
        let (x, dy) = (float32(x), float32(dy));
        stored(swiglu::backward(values(&x), values(&dy), width(&dy)), x.layout().shape().clone(), dtype)
    }
}

#[cfg(feature = "autodiff")]
impl EmbeddingBackward for Flex {
    fn fused_embed_backward(ids: FlexTensor, dy: FlexTensor, rows: usize) -> FlexTensor {
        let (ids, dy) = (tensor::int32(ids), float32(dy));
        let n_embd = width(&dy);
        new(embedding::backward(tensor::ids(&ids), values(&dy), [rows, n_embd]), [rows, n_embd])
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
        let (dtype, shape) = (qkv.dtype(), qkv.layout().shape().clone());
        let (sizes, denominators) = (sizes(&qkv, heads), values(&denominators));
        let dqkv = if is_bf16(&qkv) {
            let [qkv, y, dy] = [qkv, y, dy].map(bfloat16);
            let [qkv, y, dy] = [&qkv, &y, &dy].map(values_bf16);
            attention::backward(attention::Given { qkv, y, denominators, dy }, sizes, dropout)
        } else {
            let [qkv, y, dy] = [qkv, y, dy].map(float32);
            let [qkv, y, dy] = [&qkv, &y, &dy].map(values);
            attention::backward(attention::Given { qkv, y, denominators, dy }, sizes, dropout)
        };
        stored(dqkv, shape, dtype)
    }
}
