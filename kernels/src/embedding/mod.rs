//! Embedding lookup: rows of a table by id.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
#[cfg(test)]
mod tests;

use burn::tensor::{Int, Tensor};

use crate::operation::apply;

/// Rows of an embedding table `[rows, n_embd]` for `ids` `[batch, time]`, each below `rows`:
/// `[batch, time, n_embd]`.
pub fn embed(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    let [rows, _] = weight.dims();
    apply(Embed { ids, rows }, [weight.into_dispatch()])
}

#[derive(Clone, Debug)]
struct Embed {
    ids: Tensor<2, Int>,
    rows: usize,
}

/// [`embed`] in burn's tensor operations.
#[cfg(test)]
pub fn plain(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    burn::tensor::module::embedding(weight, ids)
}
