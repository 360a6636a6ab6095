//! RMSNorm of every head of queries and keys, inside the joint projection.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;

use crate::{Heads, operation::apply};

/// [`crate::rms_norm`] of each head's query and key inside `qkv` `[batch, time, (n_head + 2
/// n_kv_head) head_size]`, with one weight `[head_size]` for all queries and one for all keys; the
/// values are unchanged.
pub fn qk_norm(qkv: Tensor<3>, query: Tensor<1>, key: Tensor<1>, epsilon: f64, heads: Heads) -> Tensor<3> {
    let inputs = [qkv.into_dispatch(), query.into_dispatch(), key.into_dispatch()];
    apply(QkNorm { epsilon: epsilon as f32, heads }, inputs)
}

#[derive(Clone, Debug)]
struct QkNorm {
    epsilon: f32,
    heads: Heads,
}

/// RMSNorm of every head's query and key; see [`qk_norm`].
#[cfg(test)]
pub fn plain(qkv: Tensor<3>, query: Tensor<1>, key: Tensor<1>, epsilon: f64, heads: Heads) -> Tensor<3> {
    use burn::tensor::DType;

    let dtype = qkv.dtype();
    let [q, k, v] = crate::heads::parts(qkv, heads);
    let normed = |x: Tensor<4>, weight| {
        let [batch, time, n, size] = x.dims();
        crate::plain::rms_norm(x.cast(DType::F32), weight, epsilon).cast(dtype).reshape([batch, time, n * size])
    };
    Tensor::cat(vec![normed(q, query), normed(k, key), v.flatten(2, 3)], 2)
}
