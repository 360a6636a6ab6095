//! How attention divides its width.

use burn::tensor::Tensor;

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

    /// What scores are multiplied by.
    pub(crate) fn scale(self) -> f32 {
        1.0 / (self.head_size as f32).sqrt()
    }

    /// The head of keys and values that serves a head of queries.
    pub(crate) fn serving(self, head: usize) -> usize {
        head / self.served()
    }
}

/// Queries `[batch, time, n_head, head_size]`, keys and values `[batch, time, n_kv_head,
/// head_size]` of the joint projection.
pub(crate) fn parts(qkv: Tensor<3>, heads: Heads) -> [Tensor<4>; 3] {
    let [batch, time, _] = qkv.dims();
    let Heads { n_head, n_kv_head, head_size } = heads;
    let mut first = 0;
    [n_head, n_kv_head, n_kv_head].map(|n| {
        let part = qkv.clone().narrow(2, first, n * head_size).reshape([batch, time, n, head_size]);
        first += n * head_size;
        part
    })
}

/// Each head of keys or values `[batch, n_kv_head, seen, head_size]` once for every head of queries
/// that it serves.
pub(crate) fn for_queries(x: Tensor<4>, heads: Heads) -> Tensor<4> {
    let served = heads.served();
    if served == 1 {
        return x;
    }
    let [batch, n_kv_head, seen, head_size] = x.dims();
    let x = x.reshape([batch, n_kv_head, 1, seen, head_size]).expand([batch, n_kv_head, served, seen, head_size]);
    x.reshape([batch, heads.n_head, seen, head_size])
}
