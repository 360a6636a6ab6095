//! The operations as the papers write them, in burn's own tensor operations: what runs where we have no kernel, and the
//! reference that the kernels are tested against.

use burn::tensor::{Bool, Distribution, Int, Tensor, activation};

use super::DropoutMask;

/// `x W + b` for `x` `[batch, time, n_in]`.
pub fn linear(x: Tensor<3>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<3> {
    x.matmul(weight.unsqueeze::<3>()) + bias.unsqueeze::<3>()
}

/// `x Wᵀ` for `x` `[batch, time, n_embd]` and `weight` `[vocab, n_embd]`.
pub fn unembed(x: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    x.matmul(weight.transpose().unsqueeze::<3>())
}

/// LayerNorm over the last dimension of `x` `[batch, time, n_embd]`.
pub fn layer_norm(x: Tensor<3>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Tensor<3> {
    let centred = x.clone() - x.mean_dim(2);
    let variance = centred.clone().powi_scalar(2).mean_dim(2); // [batch, time, 1]
    centred / (variance + epsilon).sqrt() * weight.unsqueeze::<3>() + bias.unsqueeze::<3>()
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
pub fn gelu(x: Tensor<3>) -> Tensor<3> {
    let inner = (x.clone() + x.clone().powi_scalar(3) * 0.044715) * (2.0 / std::f64::consts::PI).sqrt();
    x * 0.5 * (inner.tanh() + 1.0)
}

/// Causal self-attention of `qkv` `[batch, time, 3 n_embd]`.
pub fn causal_attention(qkv: Tensor<3>, n_head: usize, dropout: Option<DropoutMask>) -> Tensor<3> {
    let time = qkv.dims()[1];
    let future = Tensor::<2, Bool>::tril_mask([time, time], 0, &qkv.device()); // true above the diagonal
    let [q, k, v] = heads(qkv, n_head);
    attend(q, k, v, Some(future), dropout)
}

/// Attention of the new positions `qkv` `[batch, time, 3 n_embd]` to the cache and themselves.
pub fn cached_attention(
    qkv: Tensor<3>,
    keys: Tensor<4>,
    values: Tensor<4>,
    start: usize,
) -> (Tensor<3>, Tensor<4>, Tensor<4>) {
    let time = qkv.dims()[1];
    let [batch, n_head, _, head_size] = keys.dims();
    let [q, k, v] = heads(qkv, n_head);
    let end = start + time;
    let keys = keys.slice_assign([0..batch, 0..n_head, start..end, 0..head_size], k);
    let values = values.slice_assign([0..batch, 0..n_head, start..end, 0..head_size], v);
    // One new position sees all there is; several must not see one another's future.
    let future = (time > 1).then(|| Tensor::<2, Bool>::tril_mask([time, end], start as i64, &q.device()));
    let seen = |cache: &Tensor<4>| cache.clone().narrow(2, 0, end);
    let y = attend(q, seen(&keys), seen(&values), future, None);
    (y, keys, values)
}

/// Inverted dropout by the device's own generator; the identity without a mask.
pub fn dropout<const D: usize>(x: Tensor<D>, mask: Option<DropoutMask>) -> Tensor<D> {
    let Some(mask) = mask else { return x };
    let keep = 1.0 - mask.probability as f64;
    let kept = x.random_like(Distribution::Bernoulli(keep)).detach();
    x * kept / keep
}

/// `softmax(q kᵀ / sqrt(head_size)) v`, with the places where `future` is true left out, as `[batch, time, n_embd]`.
fn attend(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    future: Option<Tensor<2, Bool>>,
    mask: Option<DropoutMask>,
) -> Tensor<3> {
    let [batch, n_head, time, head_size] = q.dims();
    let mut scores = q.matmul(k.swap_dims(2, 3)) / (head_size as f64).sqrt(); // [batch, n_head, time, seen]
    if let Some(future) = future {
        let [rows, seen] = future.dims();
        scores =
            scores.mask_fill(future.reshape([1, 1, rows, seen]).expand([batch, n_head, rows, seen]), f32::NEG_INFINITY);
    }
    let weights = dropout(activation::softmax(scores, 3), mask);
    weights.matmul(v).swap_dims(1, 2).reshape([batch, time, n_head * head_size])
}

/// Queries, keys and values `[batch, n_head, time, head_size]` of the joint projection `[batch, time, 3 n_embd]`.
fn heads(qkv: Tensor<3>, n_head: usize) -> [Tensor<4>; 3] {
    let [batch, time, width] = qkv.dims();
    let n_embd = width / 3;
    [0, 1, 2].map(|part| {
        let x = qkv.clone().narrow(2, part * n_embd, n_embd); // [batch, time, n_embd]
        x.reshape([batch, time, n_head, n_embd / n_head]).swap_dims(1, 2) // [batch, n_head, time, head_size]
    })
}

/// Rows of an embedding table `[rows, n_embd]` for `ids` `[batch, time]`, as `[batch, time, n_embd]`.
pub fn embed(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    burn::tensor::module::embedding(weight, ids)
}
