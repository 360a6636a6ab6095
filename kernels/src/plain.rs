//! The operations as the papers write them, in burn's own tensor operations: what runs where we have no kernel, and the
//! reference that the kernels are tested against.

use burn::backend::Dispatch;
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData, activation};

use super::ops::PointwiseOps;
use super::{CachedRows, DropoutMask, Heads, Rotary};

/// `x W + b` for `x` `[batch, time, n_in]`.
pub fn linear(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<3> {
    let y = x.matmul(weight.unsqueeze::<3>());
    match bias {
        Some(bias) => y + bias.unsqueeze::<3>(),
        None => y,
    }
}

/// `x Wᵀ` for `x` `[batch, time, n_embd]` and `weight` `[vocab, n_embd]`.
pub fn unembed(x: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    x.matmul(weight.transpose().unsqueeze::<3>())
}

/// LayerNorm over the last dimension of `x` `[batch, time, n_embd]`.
pub fn layer_norm(x: Tensor<3>, weight: Tensor<1>, bias: Option<Tensor<1>>, epsilon: f64) -> Tensor<3> {
    let y = rms_norm(x.clone() - x.mean_dim(2), weight, epsilon); // what is centred has its variance as mean square
    match bias {
        Some(bias) => y + bias.unsqueeze::<3>(),
        None => y,
    }
}

/// RMSNorm over the last dimension of `x`, of any number of dimensions.
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let mean_square = x.clone().powi_scalar(2).mean_dim(D - 1); // [..., 1]
    x / (mean_square + epsilon).sqrt() * weight.unsqueeze::<D>()
}

/// [`rms_norm`] of every head's query and key; see [`super::qk_norm`].
pub fn qk_norm(qkv: Tensor<3>, query: Tensor<1>, key: Tensor<1>, epsilon: f64, heads: Heads) -> Tensor<3> {
    let dtype = qkv.dtype();
    let [q, k, v] = parts(qkv, heads);
    let normed = |x: Tensor<4>, weight| {
        let [batch, time, n, size] = x.dims();
        rms_norm(x.cast(DType::F32), weight, epsilon).cast(dtype).reshape([batch, time, n * size])
    };
    Tensor::cat(vec![normed(q, query), normed(k, key), v.flatten(2, 3)], 2)
}

/// Queries and keys turned by the angles of their positions; see [`super::rotate`].
pub fn rotate(qkv: Tensor<3>, rotary: &Rotary, heads: Heads) -> Tensor<3> {
    let dtype = qkv.dtype();
    let [q, k, v] = parts(qkv, heads);
    let angles = |table: &Tensor<2>| table.clone().unsqueeze_dim::<3>(1).unsqueeze::<4>(); // [1, time, 1, head_size / 2]
    let turned = |x: Tensor<4>| {
        let half = heads.head_size / 2;
        let (x, cos, sin) = (x.cast(DType::F32), angles(&rotary.cos), angles(&rotary.sin));
        let (a, b) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
        let turned = [a.clone() * cos.clone() - b.clone() * sin.clone(), b * cos + a * sin];
        Tensor::cat(turned.to_vec(), 3).cast(dtype).flatten::<3>(2, 3)
    };
    Tensor::cat(vec![turned(q), turned(k), v.flatten(2, 3)], 2)
}

/// `silu(gate) * x` for the two halves of the last dimension.
pub fn swiglu(x: Tensor<3>) -> Tensor<3> {
    let n = x.dims()[2] / 2;
    activation::silu(x.clone().narrow(2, 0, n)) * x.narrow(2, n, n)
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
pub fn gelu(x: Tensor<3>) -> Tensor<3> {
    let inner = (x.clone() + x.clone().powi_scalar(3) * 0.044715) * (2.0 / std::f64::consts::PI).sqrt();
    x * 0.5 * (inner.tanh() + 1.0)
}

/// Causal self-attention of `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`: its output
/// `[batch, time, n_head head_size]`, and its weights `[batch, n_head, time, time]`, after dropout where there is any.
pub fn causal_attention(qkv: Tensor<3>, heads: Heads, dropout: Option<DropoutMask>) -> (Tensor<3>, Tensor<4>) {
    let time = qkv.dims()[1];
    let future = Tensor::<2, Bool>::tril_mask([time, time], 0, &qkv.device()); // true above the diagonal
    let [q, k, v] = parts(qkv, heads).map(|x| x.swap_dims(1, 2));
    let (k, v) = (for_queries(k, heads), for_queries(v, heads)); // [batch, n_head, time, head_size]
    let [batch, n_head, _, _] = q.dims();
    let future = future.reshape([1, 1, time, time]).expand([batch, n_head, time, time]);
    attend(q, k, v, Some(future), dropout)
}

/// Rows of a cache, gathered position by position into a rectangle as long as the longest.
pub struct GatheredRows {
    first_new: usize,
    rows: usize,
    /// Most positions of a row, and most new ones.
    longest: [usize; 2],
    /// The slot of each position, `[rows * longest]`; any slot where a row is shorter.
    slots: Tensor<1, Int>,
    /// Which new position each query is, `[rows * most new]`, and where each new position stands among the queries; none
    /// where every row has as many new ones, so that the two orders are one.
    queries: Option<[Tensor<1, Int>; 2]>,
    /// True where a query must not look, `[rows, 1, most new, longest]`; none where every query sees all there is.
    hidden: Option<Tensor<4, Bool>>,
}

impl GatheredRows {
    /// Uploads what says where the rows stand.
    pub fn new(rows: &CachedRows, device: &Device) -> Self {
        let count = rows.slots.len();
        let longest = rows.slots.iter().map(Vec::len).max().unwrap_or(0);
        let most_new = rows.new.iter().copied().max().unwrap_or(0);
        let ints = |values: Vec<i32>| {
            let length = values.len();
            Tensor::<1, Int>::from_data(TensorData::new(values, [length]), device)
        };
        let (mut slots, mut queries, mut places, mut hidden) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        for (row, (positions, &new)) in rows.slots.iter().zip(rows.new.iter()).enumerate() {
            slots.extend(positions.iter().map(|&slot| slot as i32));
            slots.resize((row + 1) * longest, rows.first_new as i32);
            places.extend((0..new).map(|i| (row * most_new + i) as i32));
            for i in 0..most_new {
                queries.push((first + i.min(new - 1)) as i32);
                let seen = positions.len() - new + i.min(new - 1) + 1;
                hidden.extend((0..longest).map(|position| position >= seen));
            }
            first += new;
        }
        let ragged = rows.new.iter().any(|&new| new != most_new);
        let mask = hidden.contains(&true);
        Self {
            first_new: rows.first_new,
            rows: count,
            longest: [longest, most_new],
            slots: ints(slots),
            queries: ragged.then(|| [ints(queries), ints(places)]),
            hidden: mask.then(|| Tensor::from_data(TensorData::new(hidden, [count, 1, most_new, longest]), device)),
        }
    }

    /// As [`super::CachedAttention::attend`].
    pub fn attend(
        &self,
        qkv: Tensor<3>,
        keys: Tensor<3>,
        values: Tensor<3>,
        heads: Heads,
    ) -> (Tensor<3>, Tensor<3>, Tensor<3>) {
        let total = qkv.dims()[1];
        let Heads { n_head, n_kv_head, head_size } = heads;
        let [longest, most_new] = self.longest;
        let [q, k, v] = parts(qkv, heads).map(|x| x.squeeze_dim::<3>(0)); // [new positions, heads, head_size]
        let new = [0..n_kv_head, self.first_new..self.first_new + total, 0..head_size];
        let keys = keys.slice_assign(new.clone(), k.swap_dims(0, 1));
        let values = values.slice_assign(new, v.swap_dims(0, 1));

        let q = match &self.queries {
            Some([queries, _]) => q.select(0, queries.clone()),
            None => q,
        };
        let q = q.reshape([self.rows, most_new, n_head, head_size]).swap_dims(1, 2);
        let seen = |cache: &Tensor<3>| {
            let rows = cache.clone().select(1, self.slots.clone()).reshape([n_kv_head, self.rows, longest, head_size]);
            for_queries(rows.swap_dims(0, 1), heads) // [rows, n_head, longest, head_size]
        };
        let hidden = self.hidden.clone().map(|hidden| hidden.expand([self.rows, n_head, most_new, longest]));
        let (y, _weights) = attend(q, seen(&keys), seen(&values), hidden, None); // [rows, most new, n_head head_size]
        let y = y.reshape([self.rows * most_new, heads.query_width()]);
        let y = match &self.queries {
            Some([_, places]) => y.select(0, places.clone()),
            None => y,
        };
        (y.unsqueeze::<3>(), keys, values)
    }
}

/// Inverted dropout by a mask that the CPU computes; the identity without one.
pub fn dropout<const D: usize>(x: Tensor<D>, mask: Option<DropoutMask>) -> Tensor<D> {
    let Some(mask) = mask else { return x };
    let ones = Tensor::<1>::ones([x.shape().num_elements()], &Device::flex());
    let kept = Tensor::<1>::from_dispatch(<Dispatch as PointwiseOps>::fused_dropout(ones.into_dispatch(), mask));
    let kept = Tensor::<1>::from_data(kept.into_data(), &x.device()).cast(x.dtype());
    x.clone() * kept.reshape(x.shape())
}

/// `softmax(q kᵀ / sqrt(head_size)) v`, without the places where `hidden` `[batch, n_head, time, seen]` is true, as
/// `[batch, time, n_embd]`; and the softmax, `[batch, n_head, time, seen]`, after dropout.
fn attend(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    hidden: Option<Tensor<4, Bool>>,
    mask: Option<DropoutMask>,
) -> (Tensor<3>, Tensor<4>) {
    let [batch, n_head, time, head_size] = q.dims();
    let dtype = v.dtype();
    // The queries are scaled, not the scores: in float16 those could leave the range before they are made smaller.
    let q = q / (head_size as f64).sqrt();
    let mut scores = q.matmul(k.swap_dims(2, 3)).cast(DType::F32); // [batch, n_head, time, seen]
    if let Some(hidden) = hidden {
        scores = scores.mask_fill(hidden, f32::NEG_INFINITY);
    }
    let weights = dropout(activation::softmax(scores, 3), mask);
    let y = weights.clone().cast(dtype).matmul(v).swap_dims(1, 2).reshape([batch, time, n_head * head_size]);
    (y, weights)
}

/// Queries `[batch, time, n_head, head_size]`, keys and values `[batch, time, n_kv_head, head_size]` of the joint projection.
fn parts(qkv: Tensor<3>, heads: Heads) -> [Tensor<4>; 3] {
    let [batch, time, _] = qkv.dims();
    let Heads { n_head, n_kv_head, head_size } = heads;
    let mut first = 0;
    [n_head, n_kv_head, n_kv_head].map(|n| {
        let part = qkv.clone().narrow(2, first, n * head_size).reshape([batch, time, n, head_size]);
        first += n * head_size;
        part
    })
}

/// Each head of keys or values `[batch, n_kv_head, seen, head_size]` once for every head of queries that it serves.
fn for_queries(x: Tensor<4>, heads: Heads) -> Tensor<4> {
    let served = heads.served();
    if served == 1 {
        return x;
    }
    let [batch, n_kv_head, seen, head_size] = x.dims();
    let x = x.reshape([batch, n_kv_head, 1, seen, head_size]).expand([batch, n_kv_head, served, seen, head_size]);
    x.reshape([batch, heads.n_head, seen, head_size])
}

/// Rows of an embedding table `[rows, n_embd]` for `ids` `[batch, time]`, as `[batch, time, n_embd]`.
pub fn embed(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    burn::tensor::module::embedding(weight, ids)
}
