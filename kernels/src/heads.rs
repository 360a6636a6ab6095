//! How attention's width is divided into heads.

use burn::tensor::Tensor;

/// How attention's width is divided into heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub n_head: usize,
    /// Key/value heads; each serves `n_head / n_kv_head` adjacent query heads.
    pub n_kv_head: usize,
    /// Width of a head.
    pub head_size: usize,
}

impl Heads {
    /// Width of the queries, and of attention's output.
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

    /// Query heads that each key/value head serves.
    pub fn served(self) -> usize {
        self.n_head / self.n_kv_head
    }

    /// Factor that scores are multiplied by.
    pub(crate) fn scale(self) -> f32 {
        1.0 / (self.head_size as f32).sqrt()
    }

    /// The key/value head that serves query head `head`.
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

/// Repeats each head of keys or values `[batch, n_kv_head, seen, head_size]` for every query head
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
