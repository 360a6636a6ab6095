//! The arithmetic of optimizers: AdamW, Muon, the average of the weights, and what clipping by the
//! global norm needs. Nobody differentiates an optimizer, so nothing here has a gradient.

mod cpu;
#[cfg(feature = "gpu")]
pub mod gpu;
#[cfg(test)]
mod tests;
mod update;

use burn::tensor::Tensor;

use crate::{is_cpu, linear};
pub use cpu::{adamw, follow, sum_of_squares};
pub use update::{MuonUpdate, Update};
use update::{SMALLEST_NORM, STEPS, X, X3, X5};

/// Matrix and momentum `[in, out]` after one step: on the CPU by our kernel, on a GPU by the
/// formulas.
pub fn muon(matrix: Tensor<2>, gradient: Tensor<2>, momentum: Tensor<2>, update: &MuonUpdate) -> [Tensor<2>; 2] {
    if is_cpu(&matrix.device()) {
        return cpu::muon(matrix, gradient, momentum, update);
    }
    plain_muon(matrix, gradient, momentum, update)
}

/// The textbook formulas, in burn's tensor operations.
fn plain_muon(matrix: Tensor<2>, gradient: Tensor<2>, momentum: Tensor<2>, update: &MuonUpdate) -> [Tensor<2>; 2] {
    let n_in = matrix.dims()[0];
    let gradient = gradient * update.scale;
    let momentum = momentum * update.momentum + gradient.clone() * (1.0 - update.momentum);
    // Nesterov: the momentum as it would be after this gradient once more.
    let direction = momentum.clone() * update.momentum + gradient * (1.0 - update.momentum);
    let mut first = 0;
    let steps = update.widths.iter().map(|&width| {
        let part = direction.clone().narrow(1, first, width);
        first += width;
        orthogonal(part) * update.step_size(n_in, width)
    });
    let step = Tensor::cat(steps.collect(), 1);
    [matrix * update.keep - step, momentum]
}

/// The matrix with its singular values brought near 1, by Newton and Schulz's iteration.
fn orthogonal(matrix: Tensor<2>) -> Tensor<2> {
    let [rows, columns] = matrix.dims();
    // The Gram matrix of the shorter side is the smaller one.
    let is_tall = rows > columns;
    let matrix = if is_tall { matrix.transpose() } else { matrix };
    // Row by row: what burn sums in one go, CUDA adds up by atomics, in another order every time.
    let norm = matrix.clone().powi_scalar(2).sum_dim(0).sum_dim(1).sqrt().clamp_min(SMALLEST_NORM); // [1, 1]
    let mut x = matrix / norm;
    for _ in 0..STEPS {
        let gram = product(x.clone(), x.clone().transpose());
        let polynomial = gram.clone() * X3 + product(gram.clone(), gram) * X5;
        x = x.clone() * X + product(polynomial, x);
    }
    if is_tall { x.transpose() } else { x }
}

/// `a b`, by the kernel that the model's products go by.
fn product(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    linear(a.unsqueeze::<3>(), b, None).squeeze_dim(0)
}
