//! Muon ([Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/)): momentum whose direction is made orthogonal, so
//! that a step moves a matrix equally far along each of its singular directions, the weak ones too.
//!
//! It steps the matrices of the blocks; embeddings, the head and vectors are AdamW's. A matrix that holds several (queries,
//! keys and values in `c_attn`; gate and hidden layer in SwiGLU's `c_fc`) is orthogonalised part by part, as the matrices would
//! be by themselves. The conventions are those of `torch.optim.Muon` with `adjust_lr_fn = "original"`: a part `[in, out]`
//! moves by the learning rate times `sqrt(max(1, out / in))`, which keeps one rate good for every width
//! ([Bernstein 2025](https://jeremybernste.in/writing/deriving-muon)), and decays by the learning rate itself.
//! PyTorch orthogonalises in bfloat16; here it is float32 everywhere.

use std::collections::BTreeMap;

use anyhow::Result;
use burn::backend::Dispatch;
use burn::tensor::Tensor;
use ember_model::kernels::is_cpu;
use ember_model::{GptConfig, MlpKind};

use super::kernel::{MuonUpdate, OptimizerOps};
use super::orthogonal::{SMALLEST_NORM, STEPS, X, X3, X5};
use super::state::{Stored, flat_values};
use super::{Rate, StoredTensor};

/// What Muon is told once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// Its learning rate over AdamW's: both follow one schedule.
    pub relative_rate: f64,
    /// Decay of the mean of the gradients.
    pub momentum: f64,
    /// Share of a matrix, times Muon's learning rate, that each step takes away.
    pub weight_decay: f64,
}

/// Muon and the momenta of the matrices that it steps.
#[derive(Clone, Debug)]
pub struct Muon {
    pub(super) config: MuonConfig,
    /// Flat.
    momenta: BTreeMap<String, Tensor<1>>,
}

impl Muon {
    pub(super) fn new(config: MuonConfig) -> Self {
        Self { config, momenta: BTreeMap::new() }
    }

    /// Whether the parameter `name` of so many dimensions is one of Muon's: a matrix of a block.
    pub(super) fn takes(name: &str, dimensions: usize) -> bool {
        dimensions == 2 && name.starts_with("h.")
    }

    /// The matrix `[in, out]` called `name` of a model of this shape after a step.
    pub(super) fn update(
        &mut self,
        name: &str,
        matrix: Tensor<2>,
        gradient: Tensor<2>,
        shape: &GptConfig,
        rate: Rate,
    ) -> Tensor<2> {
        let [n_in, n_out] = matrix.dims();
        let zeros = || Tensor::<1>::zeros([n_in * n_out], &matrix.device());
        let momentum = self.momenta.remove(name).unwrap_or_else(zeros).reshape([n_in, n_out]);
        let learning_rate = rate.learning_rate * self.config.relative_rate;
        let update = MuonUpdate {
            widths: parts(shape, name, n_out),
            momentum: self.config.momentum as f32,
            learning_rate: learning_rate as f32,
            keep: (1.0 - learning_rate * self.config.weight_decay) as f32,
            scale: rate.gradient_scale as f32,
        };
        let (matrix, momentum) = apply(matrix, gradient, momentum, update);
        self.momenta.insert(name.to_owned(), momentum.reshape([n_in * n_out]));
        matrix
    }

    /// Values remembered.
    pub(super) fn values(&self) -> usize {
        self.momenta.values().map(|momentum| momentum.dims()[0]).sum()
    }

    /// Every momentum by name (`momentum.h.0...`).
    pub(super) fn stored(&self) -> impl Iterator<Item = StoredTensor> {
        self.momenta.iter().map(|(name, momentum)| (format!("momentum.{name}"), flat_values(momentum)))
    }

    /// Takes up the stored momentum of the parameter `name` of `n` values.
    pub(super) fn restore(&mut self, name: &str, n: usize, stored: &mut Stored) -> Result<()> {
        self.momenta.insert(name.to_owned(), stored.take("momentum", name, n)?);
        Ok(())
    }
}

/// The widths of the matrices that stand side by side in the matrix `name`, which has `n_out` columns.
fn parts(shape: &GptConfig, name: &str, n_out: usize) -> Vec<usize> {
    if name.ends_with("attn.c_attn.weight") {
        let heads = shape.heads();
        return vec![heads.query_width(), heads.kv_width(), heads.kv_width()];
    }
    if name.ends_with("mlp.c_fc.weight") && shape.mlp == MlpKind::SwiGlu {
        return vec![n_out / 2; 2];
    }
    vec![n_out]
}

/// What a part `[in, out]` moves by, in learning rates.
pub(super) fn reach(n_in: usize, n_out: usize) -> f32 {
    (n_out as f32 / n_in as f32).max(1.0).sqrt()
}

fn apply(matrix: Tensor<2>, gradient: Tensor<2>, momentum: Tensor<2>, update: MuonUpdate) -> (Tensor<2>, Tensor<2>) {
    if is_cpu(&matrix.device()) {
        let (matrix, momentum) = <Dispatch as OptimizerOps>::muon(
            matrix.into_dispatch(),
            gradient.into_dispatch(),
            momentum.into_dispatch(),
            update,
        );
        return (Tensor::from_dispatch(matrix), Tensor::from_dispatch(momentum));
    }
    apply_plain(matrix, gradient, momentum, &update)
}

/// The textbook formulas, in burn's tensor operations.
fn apply_plain(
    matrix: Tensor<2>,
    gradient: Tensor<2>,
    momentum: Tensor<2>,
    update: &MuonUpdate,
) -> (Tensor<2>, Tensor<2>) {
    let n_in = matrix.dims()[0];
    let gradient = gradient * update.scale;
    let momentum = momentum * update.momentum + gradient.clone() * (1.0 - update.momentum);
    // Nesterov: the momentum as it would be after this gradient once more.
    let direction = momentum.clone() * update.momentum + gradient * (1.0 - update.momentum);
    let mut first = 0;
    let steps = update.widths.iter().map(|&width| {
        let part = direction.clone().narrow(1, first, width);
        first += width;
        orthogonal(part) * (update.learning_rate * reach(n_in, width))
    });
    let step = Tensor::cat(steps.collect(), 1);
    (matrix * update.keep - step, momentum)
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
    use ember_model::kernels::Heads;
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
            let plain = apply_plain(matrix.clone(), gradient.clone(), momentum.clone(), &update(widths.clone()));
            let ours = apply(matrix, gradient, momentum, update(widths));
            prop_assert!(largest_difference(&plain.0, &ours.0) < 2e-5);
            prop_assert!(largest_difference(&plain.1, &ours.1) < 1e-6);
        }

        /// A joint matrix steps as its parts would by themselves.
        #[test]
        fn parts_do_not_see_each_other(n_in in 1usize..20, first in 1usize..20, second in 1usize..20) {
            let size = [n_in, first + second];
            let (matrix, gradient, momentum) = (random(size), random(size), random(size));
            let part = |from: &Tensor<2>, start, width| from.clone().narrow(1, start, width);
            let alone = |start, width| {
                apply(part(&matrix, start, width), part(&gradient, start, width), part(&momentum, start, width), update(vec![width]))
            };
            let (a, b) = (alone(0, first), alone(first, second));
            let joint = apply(matrix.clone(), gradient.clone(), momentum.clone(), update(vec![first, second]));
            prop_assert_eq!(values(&Tensor::cat(vec![a.0, b.0], 1)), values(&joint.0));
            prop_assert_eq!(values(&Tensor::cat(vec![a.1, b.1], 1)), values(&joint.1));
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

    #[test]
    fn joint_matrices_have_the_parts_of_their_shape() {
        let mut shape = GptConfig::new(10, 8, 1, 4, 32);
        assert_eq!(parts(&shape, "h.0.attn.c_attn.weight", 96), [32, 32, 32]);
        assert_eq!(parts(&shape, "h.0.mlp.c_fc.weight", 128), [128]);
        assert_eq!(parts(&shape, "h.0.attn.c_proj.weight", 32), [32]);
        (shape.n_kv_head, shape.mlp) = (1, MlpKind::SwiGlu);
        let Heads { head_size, .. } = shape.heads();
        assert_eq!(parts(&shape, "h.0.attn.c_attn.weight", 48), [32, head_size, head_size]);
        assert_eq!(parts(&shape, "h.0.mlp.c_fc.weight", 128), [64, 64]);
    }
}
