//! The optimizers' arithmetic on the CPU: one pass over parameter, gradient and moments, in place.

use std::borrow::Cow;

use burn::tensor::{FloatDType, Tensor};

use super::update::{MuonUpdate, SMALLEST_NORM, STEPS, Update, X, X3, X5};
use crate::cpu::prelude::*;
use crate::gemm::{Element, Matrix, MatrixMut, Threads, product};
use crate::halves::{converted, narrow_bf16};

/// Values per task; also the unit in which squares are summed.
pub const CHUNK: usize = 16_384;

/// Parameter, first and second moment after one step of AdamW, given the gradient: each `[n]`, in
/// float32 on the CPU.
pub fn adamw(parameter: Tensor<1>, gradient: Tensor<1>, moments: [Tensor<1>; 2], update: Update) -> [Tensor<1>; 3] {
    let [first, second] = moments;
    let [gradient, mut parameter, mut first, mut second] =
        [gradient, parameter, first, second].map(|tensor| contiguous(flex(tensor)));
    values_mut(&mut parameter)
        .par_chunks_mut(CHUNK)
        .zip(values(&gradient).par_chunks(CHUNK))
        .zip(values_mut(&mut first).par_chunks_mut(CHUNK))
        .zip(values_mut(&mut second).par_chunks_mut(CHUNK))
        .for_each(|(((parameter, gradient), first), second)| step(parameter, gradient, first, second, update));
    [parameter, first, second].map(from_flex)
}

/// Matrix and momentum `[in, out]` after one step, in float32 on the CPU. The matrix consists of
/// several matrices of these `widths` side by side.
pub fn muon(
    matrix: Tensor<2>,
    gradient: Tensor<2>,
    momentum: Tensor<2>,
    widths: &[usize],
    update: MuonUpdate,
) -> [Tensor<2>; 2] {
    let columns = widths.iter().sum();
    let [gradient, mut matrix, mut momentum] = [gradient, matrix, momentum].map(|tensor| contiguous(flex(tensor)));
    let mut direction = unfilled(values::<f32>(&gradient).len());
    values_mut(&mut momentum)
        .par_chunks_mut(CHUNK)
        .zip(values(&gradient).par_chunks(CHUNK))
        .zip(direction.par_chunks_mut(CHUNK))
        .for_each(|((momentum, gradient), direction)| {
            nesterov(momentum, gradient, direction, update.momentum, update.scale);
        });
    let steps = orthogonal_parts(direction, widths, update);
    values_mut(&mut matrix).par_chunks_mut(columns).enumerate().for_each(|(row, values)| {
        let mut rest = values;
        for (width, (part, step_size)) in widths.iter().copied().zip(&steps) {
            let (values, right) = rest.split_at_mut(width);
            decay_and_step(values, &part[row * width..(row + 1) * width], update.keep, *step_size);
            rest = right;
        }
    });
    [matrix, momentum].map(from_flex)
}

/// `average + share (weights - average)`, both `[n]`, in float32 on the CPU.
pub fn follow(average: Tensor<1>, weights: Tensor<1>, share: f32) -> Tensor<1> {
    let [mut average, weights] = [average, weights].map(|tensor| contiguous(flex(tensor)));
    values_mut(&mut average)
        .par_chunks_mut(CHUNK)
        .zip(values(&weights).par_chunks(CHUNK))
        .for_each(|(average, weights)| approach(average, weights, share));
    from_flex(average)
}

/// The sum of the squares of all values of a float32 tensor on the CPU, `[1]`.
pub fn sum_of_squares<const D: usize>(gradient: Tensor<D>) -> Tensor<1> {
    let gradient = contiguous(flex(gradient));
    let partial: Vec<f32> = values(&gradient).par_chunks(CHUNK).map(squares).collect();
    let total: f64 = partial.iter().map(|square| *square as f64).sum();
    from_flex(tensor_of(vec![total as f32], [1]))
}

/// The parts of a direction, of these widths, each orthogonalised, with its step size.
fn orthogonal_parts(direction: Vec<f32>, widths: &[usize], update: MuonUpdate) -> Vec<(Vec<f32>, f32)> {
    let columns: usize = widths.iter().sum();
    let n_in = direction.len() / columns;
    let orthogonal = |mut part: Vec<f32>, width| {
        match update.precision {
            FloatDType::BF16 => orthogonalise(&mut part, width, |x| Cow::Owned(converted(x, narrow_bf16))),
            _ => orthogonalise(&mut part, width, |x| x.into()),
        }
        (part, update.step_size(n_in, width))
    };
    if widths.len() == 1 {
        return vec![orthogonal(direction, columns)];
    }
    let parts = widths.par_iter().enumerate().map(|(i, &width)| {
        let first: usize = widths[..i].iter().sum();
        let rows = direction.chunks_exact(columns).flat_map(|row| &row[first..first + width]);
        orthogonal(rows.copied().collect(), width)
    });
    parts.collect()
}

/// Orthogonalises `x`, with `columns` columns stored row after row, by the Newton-Schulz iteration,
/// which brings singular values near 1 and keeps singular vectors. `factor` converts matrices to
/// the type that is multiplied.
///
/// Each round maps the singular values by `p(x) = 3.4445 x - 4.7750 x³ + 2.0315 x⁵`, an odd
/// polynomial that increases small ones quickly and then oscillates about 1, between 0.7 and 1.2
/// ([Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/)).
fn orthogonalise<T: Element>(x: &mut [f32], columns: usize, factor: impl Fn(&[f32]) -> Cow<'_, [T]>) {
    let rows = x.len() / columns;
    // Divides by the Frobenius norm, so that no singular value is above 1.
    let square: f64 = x.chunks(columns).map(|row| f64::from(simd::sum([row], |[x]| x * x))).sum();
    let scale = 1.0 / (square.sqrt() as f32).max(SMALLEST_NORM);
    x.iter_mut().for_each(|value| *value *= scale);

    let is_wide = rows <= columns;
    let side = rows.min(columns);
    let [mut gram, mut polynomial] = [vec![0.0; side * side], vec![0.0; side * side]];
    let mut next = vec![0.0; x.len()];
    for _ in 0..STEPS {
        {
            let factors = factor(x);
            let matrix = Matrix::new(&factors, columns);
            // The Gram matrix of the shorter side: x xᵀ, multiplied from the left, or xᵀ x, from
            // the right.
            let [left, right] = if is_wide { [matrix, matrix.transposed()] } else { [matrix.transposed(), matrix] };
            product(MatrixMut::new(&mut gram, side), false, left, right, Threads::All);

            let factors = factor(&gram);
            let square = Matrix::new(&factors, side);
            product(MatrixMut::new(&mut polynomial, side), false, square, square, Threads::All);
            combine(&mut polynomial, X5, &gram, X3);

            let factors = factor(&polynomial);
            let polynomial = Matrix::new(&factors, side);
            let [left, right] = if is_wide { [polynomial, matrix] } else { [matrix, polynomial] };
            product(MatrixMut::new(&mut next, columns), false, left, right, Threads::All);
        }
        combine(x, X, &next, 1.0);
    }
}

simd_versions! {
    fn step(parameter: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], update: Update) {
        let Update { beta1, beta2, epsilon, step_size, root_correction, keep, scale } = update;
        let correction = 1.0 / root_correction;
        for (((parameter, gradient), first), second) in parameter.iter_mut().zip(gradient).zip(first).zip(second) {
            let g = gradient * scale;
            *first = beta1 * *first + (1.0 - beta1) * g;
            *second = beta2 * *second + (1.0 - beta2) * g * g;
            *parameter = *parameter * keep - step_size * *first / (second.sqrt() * correction + epsilon);
        }
    }

    fn nesterov(momentum: &mut [f32], gradient: &[f32], direction: &mut [f32], decay: f32, scale: f32) {
        for ((momentum, gradient), direction) in momentum.iter_mut().zip(gradient).zip(direction) {
            let share = (1.0 - decay) * (gradient * scale);
            *momentum = decay * *momentum + share;
            *direction = decay * *momentum + share;
        }
    }

    /// `x = a x + b y`.
    fn combine(x: &mut [f32], a: f32, y: &[f32], b: f32) {
        for (x, y) in x.iter_mut().zip(y) {
            *x = a * *x + b * y;
        }
    }

    fn decay_and_step(matrix: &mut [f32], direction: &[f32], keep: f32, step_size: f32) {
        for (value, direction) in matrix.iter_mut().zip(direction) {
            *value = *value * keep - step_size * direction;
        }
    }

    fn approach(average: &mut [f32], weights: &[f32], share: f32) {
        for (average, weight) in average.iter_mut().zip(weights) {
            *average += share * (weight - *average);
        }
    }

    fn squares(values: &[f32]) -> f32 {
        simd::sum([values], |[x]| x * x)
    }
}
