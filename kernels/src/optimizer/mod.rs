//! The arithmetic of optimizers: AdamW, Muon, the average of the weights, and what clipping by the
//! global norm needs. Nobody differentiates an optimizer, so nothing here has a gradient.

mod cpu;
#[cfg(feature = "gpu")]
pub mod gpu;

use burn::tensor::Tensor;

use crate::is_cpu;
pub use cpu::{MuonUpdate, Update, adamw, follow, sum_of_squares};
use cpu::{SMALLEST_NORM, STEPS, X, X3, X5};

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
        let gram = x.clone().matmul(x.clone().transpose());
        let polynomial = gram.clone() * X3 + gram.clone().matmul(gram) * X5;
        x = x.clone() * X + polynomial.matmul(x);
    }
    if is_tall { x.transpose() } else { x }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Distribution};
    use itertools::Itertools;
    use proptest::prelude::*;

    use super::*;

    fn values(tensor: &Tensor<2>) -> Vec<f32> {
        tensor.clone().into_data().iter::<f32>().collect()
    }

    fn largest_difference(a: &Tensor<2>, b: &Tensor<2>) -> f32 {
        values(a).iter().zip_eq(values(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    }

    fn update(widths: Vec<usize>) -> MuonUpdate {
        MuonUpdate { widths, momentum: 0.9, learning_rate: 0.02, keep: 0.99, scale: 0.5 }
    }

    fn random(size: [usize; 2]) -> Tensor<2> {
        Tensor::random(size, Distribution::Normal(0.0, 1.0), &Device::flex())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Our kernel and the textbook formulas agree, on wide, square and tall parts.
        #[test]
        fn the_kernel_computes_the_formulas(n_in in 1usize..40, widths in prop::collection::vec(1usize..40, 1..4)) {
            let size = [n_in, widths.iter().sum()];
            let (matrix, gradient, momentum) = (random(size), random(size), random(size));
            let plain = plain_muon(matrix.clone(), gradient.clone(), momentum.clone(), &update(widths.clone()));
            let ours = muon(matrix, gradient, momentum, &update(widths));
            prop_assert!(largest_difference(&plain[0], &ours[0]) < 2e-5);
            prop_assert!(largest_difference(&plain[1], &ours[1]) < 1e-6);
        }

        /// A joint matrix steps as its parts would by themselves.
        #[test]
        fn parts_do_not_see_each_other(n_in in 1usize..20, first in 1usize..20, second in 1usize..20) {
            let size = [n_in, first + second];
            let (matrix, gradient, momentum) = (random(size), random(size), random(size));
            let part = |from: &Tensor<2>, start, width| from.clone().narrow(1, start, width);
            let alone = |start, width| {
                muon(part(&matrix, start, width), part(&gradient, start, width), part(&momentum, start, width), &update(vec![width]))
            };
            let (a, b) = (alone(0, first), alone(first, second));
            let joint = muon(matrix.clone(), gradient.clone(), momentum.clone(), &update(vec![first, second]));
            prop_assert_eq!(values(&Tensor::cat(vec![a[0].clone(), b[0].clone()], 1)), values(&joint[0]));
            prop_assert_eq!(values(&Tensor::cat(vec![a[1].clone(), b[1].clone()], 1)), values(&joint[1]));
        }
    }

    #[test]
    fn singular_values_end_near_one() {
        // A diagonal matrix stays diagonal, and its entries are its singular values.
        let device = Device::flex();
        let matrix = Tensor::<2>::from_floats([[3.0, 0.0, 0.0], [0.0, -0.5, 0.0], [0.0, 0.0, 0.1]], &device);
        let got = values(&orthogonal(matrix));
        for (i, value) in got.iter().enumerate() {
            let want = [1.0, -1.0, 1.0][i / 3] * if i % 4 == 0 { 1.0 } else { 0.0 };
            assert!((value - want).abs() < 0.35, "{got:?}");
        }
        assert_eq!(values(&orthogonal(Tensor::zeros([2, 3], &device))), [0.0; 6]);
    }
}
