//! The operations as the papers write them, in burn's own tensor operations: what runs where we have no kernel, and the
//! reference that the kernels are tested against.

use burn::tensor::{Bool, Device, Distribution, Int, Tensor, TensorData, activation};

use super::{CachedRows, DropoutMask};

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

/// Causal self-attention of `qkv` `[batch, time, 3 n_embd]`: its output `[batch, time, n_embd]`, and its weights
/// `[batch, n_head, time, time]`, after dropout where there is any.
pub fn causal_attention(qkv: Tensor<3>, n_head: usize, dropout: Option<DropoutMask>) -> (Tensor<3>, Tensor<4>) {
    let time = qkv.dims()[1];
    let future = Tensor::<2, Bool>::tril_mask([time, time], 0, &qkv.device()); // true above the diagonal
    let [q, k, v] = heads(qkv, n_head);
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
        keys: Tensor<2>,
        values: Tensor<2>,
        n_head: usize,
    ) -> (Tensor<3>, Tensor<2>, Tensor<2>) {
        let [_, total, width] = qkv.dims();
        let n_embd = width / 3;
        let [longest, most_new] = self.longest;
        let part = |part: usize| qkv.clone().narrow(2, part * n_embd, n_embd).reshape([total, n_embd]);
        let new = [self.first_new..self.first_new + total, 0..n_embd];
        let keys = keys.slice_assign(new.clone(), part(1));
        let values = values.slice_assign(new, part(2));

        let heads = |x: Tensor<2>, time: usize| {
            x.reshape([self.rows, time, n_head, n_embd / n_head]).swap_dims(1, 2) // [rows, n_head, time, head_size]
        };
        let q = match &self.queries {
            Some([queries, _]) => part(0).select(0, queries.clone()),
            None => part(0),
        };
        let seen = |cache: &Tensor<2>| heads(cache.clone().select(0, self.slots.clone()), longest);
        let hidden = self.hidden.clone().map(|hidden| hidden.expand([self.rows, n_head, most_new, longest]));
        let (y, _weights) = attend(heads(q, most_new), seen(&keys), seen(&values), hidden, None); // [rows, most new, n_embd]
        let y = match &self.queries {
            Some([_, places]) => y.reshape([self.rows * most_new, n_embd]).select(0, places.clone()),
            None => y.reshape([total, n_embd]),
        };
        (y.unsqueeze::<3>(), keys, values)
    }
}

/// Inverted dropout by the device's own generator; the identity without a mask.
pub fn dropout<const D: usize>(x: Tensor<D>, mask: Option<DropoutMask>) -> Tensor<D> {
    let Some(mask) = mask else { return x };
    let keep = 1.0 - mask.probability as f64;
    let kept = x.random_like(Distribution::Bernoulli(keep)).detach();
    x * kept / keep
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
    let mut scores = q.matmul(k.swap_dims(2, 3)) / (head_size as f64).sqrt(); // [batch, n_head, time, seen]
    if let Some(hidden) = hidden {
        scores = scores.mask_fill(hidden, f32::NEG_INFINITY);
    }
    let weights = dropout(activation::softmax(scores, 3), mask);
    let y = weights.clone().matmul(v).swap_dims(1, 2).reshape([batch, time, n_head * head_size]);
    (y, weights)
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
