//! The operations that transformers are made of: the same functions for every device.
//!
//! Each operation is one folder: its formula in burn's tensor operations, which the kernels are tested against, a kernel for the CPU, few
//! for a GPU, and its gradients when the feature `autodiff` is on.

// A kernel for a GPU is written in the part of Rust that CubeCL translates, which lacks what these lints ask for.
#![allow(clippy::assign_op_pattern, clippy::manual_is_multiple_of, clippy::needless_range_loop)]
// Without the feature `autodiff` nothing calls the backward passes.
#![cfg_attr(not(feature = "autodiff"), allow(dead_code))]

pub mod arena;
pub mod argmax;
pub mod attention;
pub mod cached_attention;
mod cpu;
pub mod dropout;
pub mod embedding;
pub mod gelu;
pub mod gemm;
pub mod gpu;
pub mod linear;
pub mod norm;
mod ops;
pub mod packed;
pub mod plain;
pub mod qk_norm;
pub mod rotary;
pub mod simd;
pub mod swiglu;

#[cfg(feature = "autodiff")]
mod autodiff;

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Distribution, FloatDType, Int, Tensor, TensorData};

pub use cpu::tensor as flex;
use cpu::with_threads_awake;
pub use gemm::{matrix, multiplies_bf16};
use ops::{AttentionOps, CachedOps, ChoiceOps, EmbeddingOps, MatrixOps, NormOps, PackedOps, PointwiseOps};
pub use rotary::Rotary;

use crate::packed::Packed;

/// Whether `device` is the CPU (burn's flex), with or without automatic differentiation.
pub fn is_cpu(device: &Device) -> bool {
    device.clone().inner() == Device::flex()
}

/// How attention divides its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Heads of queries.
    pub n_head: usize,
    /// Heads of keys and values; each serves `n_head / n_kv_head` heads of queries, neighbours.
    pub n_kv_head: usize,
    /// Width of a head.
    pub head_size: usize,
}

impl Heads {
    /// Width of the queries, and of what attention puts out.
    pub fn query_width(self) -> usize {
        self.n_head * self.head_size
    }

    /// Width of the keys, and of the values.
    pub fn kv_width(self) -> usize {
        self.n_kv_head * self.head_size
    }

    /// Width of queries, keys and values side by side.
    pub fn width(self) -> usize {
        self.query_width() + 2 * self.kv_width()
    }

    /// Heads of queries that each head of keys and values serves.
    pub fn served(self) -> usize {
        self.n_head / self.n_kv_head
    }

    /// The head of keys and values that serves a head of queries.
    fn serving(self, head: usize) -> usize {
        head / self.served()
    }
}

/// One dropout: the probability of dropping a value, and the key from which its mask is computed.
///
/// The mask is a hash of (key, place in the tensor), so that the backward can compute it again instead of storing it.
#[derive(Clone, Copy, Debug)]
pub struct DropoutMask {
    /// Probability with which a value becomes 0; the others are divided by `1 - probability`.
    pub probability: f32,
    /// Names this draw among all others.
    pub key: u64,
}

impl DropoutMask {
    /// Draws a key from the CPU's generator, which training seeds with (seed, step, micro-batch), whatever the device: one that was
    /// drawn on a GPU would have to be waited for. `None` where nothing is to be dropped: at probability 0, and on a device
    /// without automatic differentiation.
    pub fn draw(probability: f64, device: &Device) -> Option<Self> {
        if probability == 0.0 || !device.is_autodiff() {
            return None;
        }
        // 24 bits are what a float32 in [0, 1) holds exactly.
        let halves = Tensor::<1>::random([2], Distribution::Uniform(0.0, 1.0), &Device::flex()).into_data();
        let key = halves.iter::<f32>().fold(0, |key, half| (key << 24) | (half * (1 << 24) as f32) as u64);
        Some(Self { probability: probability as f32, key })
    }

    /// Seeds the generator that [`Self::draw`] draws from.
    pub fn seed(seed: u64) {
        Device::flex().seed(seed);
    }
}

/// Rows of an embedding table `[rows, n_embd]` for `ids` `[batch, time]`, each below `rows`: `[batch, time, n_embd]`.
pub fn embed(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    Tensor::from_dispatch(<Dispatch as EmbeddingOps>::fused_embed(weight.into_dispatch(), ids.into_dispatch()))
}

/// `x W + b`: `x` is `[batch, time, n_in]`, `weight` `[n_in, n_out]` as GPT-2 stores it, `bias` `[n_out]` where there is one.
pub fn linear(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<3> {
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(match bias {
        Some(bias) => <Dispatch as MatrixOps>::fused_linear(x, weight, bias.into_dispatch()),
        None => <Dispatch as MatrixOps>::fused_linear_without_bias(x, weight),
    })
}

/// `gelu(x W + b)` of what [`linear`] takes, `[batch, time, n_out]`.
pub fn linear_gelu(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<3> {
    let Some(bias) = bias else { return gelu(linear(x, weight, None)) };
    let (x, weight, bias) = (x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
    let (y, _kept) = <Dispatch as MatrixOps>::fused_linear_gelu(x, weight, bias);
    Tensor::from_dispatch(y)
}

/// `residual + dropout(x W + b)`: how a branch comes back into the residual stream. `residual` is `[batch, time, n_out]` in float32,
/// as is the result; `x` `[batch, time, n_in]` has the type of the products.
pub fn linear_onto(
    residual: Tensor<3>,
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    mask: Option<DropoutMask>,
) -> Tensor<3> {
    // To add zeros costs next to nothing, and nobody asks for their gradient.
    let bias = bias.unwrap_or_else(|| Tensor::zeros([weight.dims()[1]], &weight.device()));
    Tensor::from_dispatch(<Dispatch as MatrixOps>::fused_linear_onto(
        residual.into_dispatch(),
        x.into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
        mask,
    ))
}

/// `x W + b` with packed weights: `x` is `[batch, time, n_in]` in float32 on the CPU, as is the result `[batch, time, n_out]`.
pub fn packed_linear(x: Tensor<3>, weight: &Packed) -> Tensor<3> {
    Tensor::from_dispatch(<Dispatch as PackedOps>::packed_linear(x.into_dispatch(), weight.clone()))
}

/// `residual + x W + b` with packed weights; see [`packed_linear`].
pub fn packed_linear_onto(residual: Tensor<3>, x: Tensor<3>, weight: &Packed) -> Tensor<3> {
    let (residual, x) = (residual.into_dispatch(), x.into_dispatch());
    Tensor::from_dispatch(<Dispatch as PackedOps>::packed_linear_onto(residual, x, weight.clone()))
}

/// `x Wᵀ`: logits `[batch, time, vocab]` of `x` `[batch, time, n_embd]` under an embedding table `[vocab, n_embd]`; in float32 on
/// the CPU, in the type of `x` elsewhere.
pub fn unembed(x: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    Tensor::from_dispatch(<Dispatch as MatrixOps>::fused_unembed(x.into_dispatch(), weight.into_dispatch()))
}

/// Normalises each row of a float32 `x` `[batch, time, n_embd]` to mean 0 and variance 1, then scales and shifts it; put out as `to`
/// ([Ba et al. 2016](https://arxiv.org/abs/1607.06450), equation 4).
pub fn layer_norm(x: Tensor<3>, weight: Tensor<1>, bias: Option<Tensor<1>>, epsilon: f64, to: FloatDType) -> Tensor<3> {
    // To shift by zeros costs next to nothing, and nobody asks for their gradient.
    let bias = bias.unwrap_or_else(|| Tensor::zeros(weight.dims(), &weight.device()));
    Tensor::from_dispatch(<Dispatch as NormOps>::fused_layer_norm(
        x.into_dispatch(),
        weight.into_dispatch(),
        bias.into_dispatch(),
        epsilon as f32,
        to,
    ))
}

/// Divides each row of a float32 `x` `[batch, time, n_embd]` by its root mean square, then scales it; put out as `to`
/// ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467), equation 4).
pub fn rms_norm(x: Tensor<3>, weight: Tensor<1>, epsilon: f64, to: FloatDType) -> Tensor<3> {
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(<Dispatch as NormOps>::fused_rms_norm(x, weight, epsilon as f32, to))
}

/// [`rms_norm`] of each head's query and key inside `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`, with one weight
/// `[head_size]` for all queries and one for all keys; the values stay.
pub fn qk_norm(qkv: Tensor<3>, query: Tensor<1>, key: Tensor<1>, epsilon: f64, heads: Heads) -> Tensor<3> {
    let (qkv, query, key) = (qkv.into_dispatch(), query.into_dispatch(), key.into_dispatch());
    Tensor::from_dispatch(<Dispatch as NormOps>::fused_qk_norm(qkv, query, key, epsilon as f32, heads))
}

/// Turns queries and keys inside `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]` by the angles of their positions; the
/// values stay.
pub fn rotate(qkv: Tensor<3>, rotary: &Rotary, heads: Heads) -> Tensor<3> {
    let [cos, sin] = [&rotary.cos, &rotary.sin].map(|table| table.clone().into_dispatch());
    Tensor::from_dispatch(<Dispatch as PointwiseOps>::fused_rotate(qkv.into_dispatch(), cos, sin, heads))
}

/// SwiGLU ([Shazeer 2020](https://arxiv.org/abs/2002.05202), equation 6) of `x` `[batch, time, 2 n]`: the first half is the
/// gate. Returns `[batch, time, n]`.
pub fn swiglu(x: Tensor<3>) -> Tensor<3> {
    Tensor::from_dispatch(<Dispatch as PointwiseOps>::fused_swiglu(x.into_dispatch()))
}

/// GPT-2's GELU, the tanh approximation of [Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415), section 2.
pub fn gelu(x: Tensor<3>) -> Tensor<3> {
    Tensor::from_dispatch(<Dispatch as PointwiseOps>::fused_gelu(x.into_dispatch()))
}

/// Causal self-attention ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), section 3.2) of the joint projection `qkv`
/// `[batch, time, (n_head + 2 n_kv_head) head_size]`: every position looks back on itself and what came before. Returns
/// `[batch, time, n_head head_size]`. The softmax is float32 whatever the type of `qkv`.
pub fn causal_attention(qkv: Tensor<3>, heads: Heads, dropout: Option<DropoutMask>) -> Tensor<3> {
    let (y, _kept) = <Dispatch as AttentionOps>::fused_causal_attention(qkv.into_dispatch(), heads, dropout);
    Tensor::from_dispatch(y)
}

/// As [`causal_attention`] without dropout, with the weights by which each position (third dimension) looked back on each
/// (fourth): `[batch, n_head, time, time]`, 0 in the future, each row's sum 1. The kernels never hold the weights: they come from
/// the plain formula, beside what [`causal_attention`] itself puts out.
pub fn causal_attention_and_weights(qkv: Tensor<3>, heads: Heads) -> (Tensor<3>, Tensor<4>) {
    let (_, weights) = plain::causal_attention(qkv.clone(), heads, None);
    (causal_attention(qkv, heads, None), weights)
}

/// Runs a decoding step on `device`, which is made of many short operations.
pub fn step<R>(device: &Device, f: impl FnOnce() -> R) -> R {
    if is_cpu(device) { with_threads_awake(f) } else { f() }
}

/// Where the rows of a batch stand in a cache: what attention to it needs to know beside the tensors.
#[derive(Clone, Debug)]
pub struct CachedRows {
    /// The slot of the first new position; the others follow it, row after row.
    pub first_new: usize,
    /// For each row the slots of all its positions, the new ones last.
    pub slots: Arc<Vec<Vec<u32>>>,
    /// For each row how many of its positions are new, at least 1.
    pub new: Arc<Vec<usize>>,
}

impl CachedRows {
    /// The rows as numbers for a GPU: the slot of the first new position; for each new position where in the table the slots of its
    /// row begin, and how many of them it sees; then the rows' slots.
    pub fn table(&self) -> Vec<i32> {
        let positions: usize = self.new.iter().sum();
        let mut table = Vec::with_capacity(1 + 2 * positions + self.slots.iter().map(Vec::len).sum::<usize>());
        table.push(self.first_new as i32);
        let mut begin = 1 + 2 * positions;
        for (slots, &new) in self.slots.iter().zip(self.new.iter()) {
            table.extend((0..new).flat_map(|i| [begin as i32, (slots.len() - new + i + 1) as i32]));
            begin += slots.len();
        }
        table.extend(self.slots.iter().flatten().map(|&slot| slot as i32));
        table
    }
}

/// What the host knows of where rows stand when it calls the kernels.
#[derive(Clone, Debug)]
pub enum Places {
    /// All of it; on a GPU the table says the same.
    Listed(CachedRows),
    /// Of a step that is recorded on a GPU and replayed with other tables: so many rows have one new position each, and none ever has
    /// more than `longest` in all. The cache is written where it lies, whoever else holds it.
    InTable {
        /// How many rows.
        rows: usize,
        /// Most positions of a row.
        longest: usize,
    },
}

/// Attention to a cache, made ready once for all layers of one pass.
pub enum CachedAttention {
    /// Our kernels, and the rows' table on a GPU; on the CPU it is empty.
    Kernel(Places, Box<Tensor<1, Int>>),
    /// The plain formula, where gradients are recorded.
    Plain(Box<plain::GatheredRows>),
}

impl CachedAttention {
    /// Attention for new positions on `device`.
    pub fn new(rows: CachedRows, device: &Device) -> Self {
        if device.is_autodiff() {
            return Self::Plain(Box::new(plain::GatheredRows::new(&rows, device)));
        }
        let table = if is_cpu(device) { Vec::new() } else { rows.table() };
        let length = table.len();
        let table = Tensor::from_data(TensorData::new(table, [length]), (device, DType::I32));
        Self::Kernel(Places::Listed(rows), Box::new(table))
    }

    /// Attention of a step that is recorded: one new position for each of `rows` rows, which `table`, laid out as
    /// [`CachedRows::table`], says the places of.
    pub fn recorded(rows: usize, longest: usize, table: Tensor<1, Int>) -> Self {
        Self::Kernel(Places::InTable { rows, longest }, Box::new(table))
    }

    /// Writes the keys and values of `qkv` `[1, new positions, (n_head + 2 n_kv_head) head_size]` into the new slots of `keys`
    /// and `values` `[n_kv_head, slots, head_size]`, then lets each new position look back on its row up to itself. Returns
    /// `[1, new positions, n_head head_size]` and the two caches.
    pub fn attend(
        &self,
        qkv: Tensor<3>,
        keys: Tensor<3>,
        values: Tensor<3>,
        heads: Heads,
    ) -> (Tensor<3>, Tensor<3>, Tensor<3>) {
        match self {
            Self::Plain(rows) => rows.attend(qkv, keys, values, heads),
            Self::Kernel(places, table) => {
                let (y, keys, values) = <Dispatch as CachedOps>::cached_attention(
                    qkv.into_dispatch(),
                    keys.into_dispatch(),
                    values.into_dispatch(),
                    (**table).clone().into_dispatch(),
                    heads,
                    places.clone(),
                );
                (Tensor::from_dispatch(y), Tensor::from_dispatch(keys), Tensor::from_dispatch(values))
            }
        }
    }
}

/// Dropout ([Srivastava et al. 2014](https://jmlr.org/papers/v15/srivastava14a.html)) of `x` `[batch, time, n_embd]`, scaled so
/// that the expected value stays. The identity without a mask.
pub fn dropout(x: Tensor<3>, mask: Option<DropoutMask>) -> Tensor<3> {
    match mask {
        None => x,
        Some(mask) => Tensor::from_dispatch(<Dispatch as PointwiseOps>::fused_dropout(x.into_dispatch(), mask)),
    }
}

/// `x` in another type, which it may already have.
pub fn cast<const D: usize>(x: Tensor<D>, to: FloatDType) -> Tensor<D> {
    if x.dtype() == DType::from(to) {
        return x;
    }
    Tensor::from_dispatch(<Dispatch as PointwiseOps>::fused_cast(x.into_dispatch(), to))
}

/// For each row of `logits` `[rows, vocab]`, on a GPU, the id of its largest value (of equal ones the lowest), that value, and
/// the logarithm of the sum of the exponentials of all: `[rows, 3]`, which is all that greedy decoding reads back.
pub fn best(logits: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as ChoiceOps>::best(logits.into_dispatch()))
}

/// Writes `values` to the first places of a tensor on a GPU, where it lies: a recorded step reads them there.
pub fn overwrite<const D: usize>(target: &Tensor<D, Int>, values: Vec<i32>) {
    <Dispatch as ChoiceOps>::overwrite(target.clone().into_dispatch(), values);
}
