//! Causal self-attention ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), section 3.2).

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
#[cfg(feature = "gpu")]
mod gpu_backward;
#[cfg(feature = "gpu")]
pub(crate) mod gpu_forward;
#[cfg(feature = "gpu")]
pub(crate) mod gpu_layout;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
pub(crate) mod gpu_tests;
#[cfg(test)]
mod tests;
#[cfg(feature = "cuda")]
mod warpgroups;

use burn::tensor::{Bool, DType, Tensor, activation};

use crate::heads::{Heads, for_queries, parts};
use crate::operation::apply;
use crate::{DropoutMask, dropout};

/// Causal self-attention of the joint projection `qkv` `[batch, time, (n_head + 2 n_kv_head)
/// head_size]`: every position attends to itself and to earlier ones. Returns `[batch, time, n_head
/// head_size]`. The softmax is float32 for every type of `qkv`.
pub fn causal_attention(qkv: Tensor<3>, heads: Heads, dropout: Option<DropoutMask>) -> Tensor<3> {
    apply(CausalAttention { heads, dropout }, [qkv.into_dispatch()])
}

/// As [`causal_attention`] without dropout, with the weights by which each position (third
/// dimension) attends to each (fourth): `[batch, n_head, time, time]`, 0 in the future, each row's
/// sum 1. The kernels never store the weights: they come from the plain formula, the output from
/// [`causal_attention`].
pub fn causal_attention_and_weights(qkv: Tensor<3>, heads: Heads) -> (Tensor<3>, Tensor<4>) {
    let (_, weights) = plain(qkv.clone(), heads, None);
    (causal_attention(qkv, heads, None), weights)
}

#[derive(Clone, Debug)]
struct CausalAttention {
    heads: Heads,
    dropout: Option<DropoutMask>,
}

/// Causal self-attention of `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`: its output
/// `[batch, time, n_head head_size]`, and its weights `[batch, n_head, time, time]`, after dropout
/// if there is any.
pub fn plain(qkv: Tensor<3>, heads: Heads, dropout: Option<DropoutMask>) -> (Tensor<3>, Tensor<4>) {
    let time = qkv.dims()[1];
    let future = Tensor::<2, Bool>::tril_mask([time, time], 0, &qkv.device()); // true above the diagonal
    let [q, k, v] = parts(qkv, heads).map(|x| x.swap_dims(1, 2));
    let (k, v) = (for_queries(k, heads), for_queries(v, heads)); // [batch, n_head, time, head_size]
    let [batch, n_head, _, _] = q.dims();
    let future = future.reshape([1, 1, time, time]).expand([batch, n_head, time, time]);
    plain_attend([q, k, v], future, dropout)
}

/// `softmax(q kᵀ / sqrt(head_size)) v` as `[batch, time, n_embd]`, with the scores masked where
/// `hidden` `[batch, n_head, time, seen]` is true; and the softmax, `[batch, n_head, time, seen]`,
/// after dropout.
pub(crate) fn plain_attend(
    [q, k, v]: [Tensor<4>; 3],
    hidden: Tensor<4, Bool>,
    mask: Option<DropoutMask>,
) -> (Tensor<3>, Tensor<4>) {
    let [batch, n_head, time, head_size] = q.dims();
    let dtype = v.dtype();
    // The queries are scaled, not the scores: in float16 unscaled scores could overflow.
    let q = q / (head_size as f64).sqrt();
    let scores = q.matmul(k.swap_dims(2, 3)).cast(DType::F32); // [batch, n_head, time, seen]
    let scores = scores.mask_fill(hidden, f32::NEG_INFINITY);
    let weights = dropout::plain(activation::softmax(scores, 3), mask);
    let y = weights.clone().cast(dtype).matmul(v).swap_dims(1, 2).reshape([batch, time, n_head * head_size]);
    (y, weights)
}
