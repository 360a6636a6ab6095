#![allow(clippy::unwrap_used)]
use burn::tensor::{Device, Distribution, FloatDType, Tensor};
use itertools::Itertools;
use proptest::prelude::*;

use super::update::{SMALLEST_NORM, STEPS, X, X3, X5};
use super::*;
use crate::testing::largest_difference;

fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().iter::<f32>().collect()
}

const UPDATE: MuonUpdate =
    MuonUpdate { momentum: 0.9, learning_rate: 0.02, keep: 0.99, scale: 0.5, precision: FloatDType::F32 };

fn random(size: [usize; 2]) -> Tensor<2> {
    Tensor::random(size, Distribution::Normal(0.0, 1.0), &Device::flex())
}

/// One value, less than a whole vector, and more than two tasks take.
const SIZES: [usize; 3] = [1, 37, 2 * cpu::CHUNK + 5];

/// Whole numbers from -11 to 11 divided by a power of two, exact in float32; a different sequence
/// for each `seed`.
fn numbers(n: usize, seed: usize, over: f64) -> Vec<f64> {
    (0..n).map(|i| (((i * 37 + seed * 11) % 23) as f64 - 11.0) / over).collect()
}

fn vector(values: &[f64]) -> Tensor<1> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Tensor::from_floats(values.as_slice(), &Device::flex())
}

fn assert_near(got: &Tensor<1>, want: &[f64], allowed: f64) {
    for (got, want) in values(got).into_iter().zip_eq(want) {
        assert!((f64::from(got) - want).abs() <= allowed, "{got} for {want}");
    }
}

/// Loshchilov and Hutter's algorithm 2 in float64, with a clipped gradient.
#[test]
fn adamw_computes_its_formula() {
    let (learning_rate, weight_decay) = (1e-2, 0.1);
    let [beta1, beta2, epsilon, scale] = [0.9f32, 0.95, 1e-3, 0.5];
    // The kernel's float32 constants, so that only the computation differs.
    let [b1, b2, eps, clip] = [beta1, beta2, epsilon, scale].map(f64::from);
    for n in SIZES {
        let mut parameter = numbers(n, 0, 16.0);
        let (mut first, mut second) = (vec![0.0; n], vec![0.0; n]);
        let mut got = [vector(&parameter), vector(&first), vector(&second)];
        for t in 1..=5 {
            let gradient = numbers(n, t, 64.0);
            let [c1, c2] = [b1, b2].map(|beta: f64| 1.0 - beta.powi(t as i32));
            for (i, g) in gradient.iter().enumerate() {
                let g = clip * g;
                first[i] = b1 * first[i] + (1.0 - b1) * g;
                second[i] = b2 * second[i] + (1.0 - b2) * g * g;
                let direction = first[i] / c1 / ((second[i] / c2).sqrt() + eps);
                parameter[i] -= learning_rate * (weight_decay * parameter[i] + direction);
            }
            let update = Update {
                beta1,
                beta2,
                epsilon,
                step_size: (learning_rate / c1) as f32,
                root_correction: c2.sqrt() as f32,
                keep: (1.0 - learning_rate * weight_decay) as f32,
                scale,
            };
            let [parameter_before, first_before, second_before] = got;
            got = adamw(parameter_before, vector(&gradient), [first_before, second_before], update);
            // Rounding after every operation gives errors of 1.3e-7, 8.6e-10 and 6.6e-11 after five
            // steps of these numbers.
            assert_near(&got[0], &parameter, 3e-7);
            assert_near(&got[1], &first, 2e-9);
            assert_near(&got[2], &second, 2e-10);
        }
    }
}

/// Exact in float32 for these numbers.
#[test]
fn an_average_goes_its_share_of_the_way() {
    for n in SIZES {
        let (average, weights) = (numbers(n, 1, 16.0), numbers(n, 2, 16.0));
        let want: Vec<f64> = average.iter().zip_eq(&weights).map(|(a, w)| a + 0.125 * (w - a)).collect();
        assert_near(&follow(vector(&average), vector(&weights), 0.125), &want, 0.0);
    }
}

/// Exact in float32 for these numbers.
#[test]
fn squares_are_summed_over_all_values() {
    for n in SIZES {
        let gradient = numbers(n, 3, 1.0);
        let want: f64 = gradient.iter().map(|g| g * g).sum();
        assert_near(&sum_of_squares(vector(&gradient)), &[want], 0.0);
    }
}

/// The textbook formulas, in burn's tensor operations.
fn plain_muon(
    matrix: Tensor<2>,
    gradient: Tensor<2>,
    momentum: Tensor<2>,
    widths: &[usize],
    update: MuonUpdate,
) -> [Tensor<2>; 2] {
    let n_in = matrix.dims()[0];
    let gradient = gradient * update.scale;
    let momentum = momentum * update.momentum + gradient.clone() * (1.0 - update.momentum);
    // Nesterov: the momentum as if this gradient were added once more.
    let direction = momentum.clone() * update.momentum + gradient * (1.0 - update.momentum);
    let mut first = 0;
    let steps = widths.iter().map(|&width| {
        let part = direction.clone().narrow(1, first, width);
        first += width;
        orthogonal(part) * update.step_size(n_in, width)
    });
    let step = Tensor::cat(steps.collect(), 1);
    [matrix * update.keep - step, momentum]
}

/// The matrix with its singular values moved close to 1, by Newton-Schulz iteration.
fn orthogonal(matrix: Tensor<2>) -> Tensor<2> {
    let [rows, columns] = matrix.dims();
    // The Gram matrix of the shorter side is smaller.
    let is_tall = rows > columns;
    let matrix = if is_tall { matrix.transpose() } else { matrix };
    let norm = matrix.clone().powi_scalar(2).sum().sqrt().clamp_min(SMALLEST_NORM).into_scalar::<f32>();
    let mut x = matrix / norm;
    for _ in 0..STEPS {
        let gram = x.clone().matmul(x.clone().transpose());
        let polynomial = gram.clone() * X3 + gram.clone().matmul(gram) * X5;
        x = x.clone() * X + polynomial.matmul(x);
    }
    if is_tall { x.transpose() } else { x }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The kernel agrees with the textbook formulas for wide, square and tall parts.
    #[test]
    fn the_kernel_computes_the_formulas(n_in in 1usize..40, widths in prop::collection::vec(1usize..40, 1..4)) {
        let size = [n_in, widths.iter().sum()];
        let (matrix, gradient, momentum) = (random(size), random(size), random(size));
        let plain = plain_muon(matrix.clone(), gradient.clone(), momentum.clone(), &widths, UPDATE);
        let ours = muon(matrix, gradient, momentum, &widths, UPDATE);
        prop_assert!(largest_difference(&values(&plain[0]), &values(&ours[0])) < 2e-5);
        prop_assert!(largest_difference(&values(&plain[1]), &values(&ours[1])) < 1e-6);
    }

    /// bfloat16 keeps eight bits of each factor, and five iterations multiply the smallest singular
    /// values, including their rounding errors, by about five hundred: the step has a cosine of
    /// 0.98 with the exact one.
    #[test]
    fn bfloat16_orthogonalises_nearly_as_well(n_in in 1usize..100, n_out in 1usize..100) {
        let (matrix, gradient, momentum) = (random([n_in, n_out]), random([n_in, n_out]), random([n_in, n_out]));
        let in_bfloat16 = MuonUpdate { precision: FloatDType::BF16, ..UPDATE };
        let exact = muon(matrix.clone(), gradient.clone(), momentum.clone(), &[n_out], UPDATE);
        let short = muon(matrix.clone(), gradient, momentum, &[n_out], in_bfloat16);
        let step = |after: &Tensor<2>| values(&(after.clone() - matrix.clone() * 0.99));
        let (exact, short) = (step(&exact[0]), step(&short[0]));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip_eq(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let cosine = dot(&exact, &short) / (dot(&exact, &exact) * dot(&short, &short)).sqrt();
        prop_assert!(cosine > 0.98, "{cosine}");
    }

    /// The parts of a joint matrix are updated as separate matrices would be.
    #[test]
    fn parts_do_not_see_each_other(n_in in 1usize..20, first in 1usize..20, second in 1usize..20) {
        let size = [n_in, first + second];
        let (matrix, gradient, momentum) = (random(size), random(size), random(size));
        let part = |from: &Tensor<2>, start, width| from.clone().narrow(1, start, width);
        let alone = |start, width| {
            muon(part(&matrix, start, width), part(&gradient, start, width), part(&momentum, start, width), &[width], UPDATE)
        };
        let (a, b) = (alone(0, first), alone(first, second));
        let joint = muon(matrix.clone(), gradient.clone(), momentum.clone(), &[first, second], UPDATE);
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
