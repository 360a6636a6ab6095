//! LayerNorm on the CPU: one pass a row forward, one backward, with the statistics computed again
//! rather than stored.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::{LayerNorm, ROWS};
use crate::bits::unfilled;
use crate::cpu::tensor::{contiguous, float32, new, stored, values};
use crate::operation::Operation;
use crate::simd::sum_of;
use crate::{simd, simd_versions};

impl Operation<Flex, 3> for LayerNorm {
    type Kept = [FlexTensor; 2];

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3]) -> ([FlexTensor; 1], Self::Kept) {
        let [x, weight, bias] = [x, weight, bias].map(contiguous);
        let y = forward(values(&x), values(&weight), values(&bias), self.epsilon);
        ([stored(y, x.layout().shape().clone(), self.to.into())], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 3] {
        let dy = float32(dy);
        let (dx, dweight, dbias) = backward(values(&x), values(&weight), values(&dy), self.epsilon);
        let n = dweight.len();
        [new(dx, x.layout().shape().clone()), new(dweight, [n]), new(dbias, [n])]
    }
}

/// Normalises each row of `x` (rows of `weight.len()` values).
fn forward(x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32) -> Vec<f32> {
    let mut y = unfilled(x.len());
    let chunk = ROWS * weight.len();
    y.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(y, x)| forward_rows(x, weight, bias, y, epsilon));
    y
}

/// Gradients with respect to `x`, `weight` and `bias`, given that of the output.
fn backward(x: &[f32], weight: &[f32], dy: &[f32], epsilon: f32) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let n = weight.len();
    let mut dx = unfilled(x.len());
    let chunk = ROWS * n;
    let partial: Vec<Vec<f32>> = dx
        .par_chunks_mut(chunk)
        .zip(x.par_chunks(chunk))
        .zip(dy.par_chunks(chunk))
        .map(|((dx, x), dy)| {
            let mut sums = vec![0.0; 2 * n];
            let (dweight, dbias) = sums.split_at_mut(n);
            backward_rows(x, weight, dy, dx, dweight, dbias, epsilon);
            sums
        })
        .collect();
    let mut dweight = sum_of(&partial, 2 * n);
    let dbias = dweight.split_off(n);
    (dx, dweight, dbias)
}

/// Mean and reciprocal standard deviation of one row.
#[inline(always)]
fn statistics(x: &[f32], epsilon: f32) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = simd::sum([x], |[x]| x) / n;
    let variance = simd::sum([x], |[x]| (x - mean) * (x - mean)) / n;
    (mean, 1.0 / (variance + epsilon).sqrt())
}

simd_versions! {
    fn forward_rows(x: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32], epsilon: f32) {
        let n = weight.len();
        let bias = &bias[..n];
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            let (mean, scale) = statistics(x, epsilon);
            for i in 0..n {
                y[i] = ((x[i] - mean) * scale).mul_add(weight[i], bias[i]);
            }
        }
    }

    // With h the normalised row and g = dy * weight: dx = (g - mean(g) - h * mean(g * h)) / std.
    fn backward_rows(
        x: &[f32], weight: &[f32], dy: &[f32], dx: &mut [f32], dweight: &mut [f32], dbias: &mut [f32], epsilon: f32,
    ) {
        let n = weight.len();
        let (dweight, dbias) = (&mut dweight[..n], &mut dbias[..n]);
        for ((x, dy), dx) in x.chunks_exact(n).zip(dy.chunks_exact(n)).zip(dx.chunks_exact_mut(n)) {
            let (mean, scale) = statistics(x, epsilon);
            let mean_g = simd::sum([dy, weight], |[dy, w]| dy * w) / n as f32;
            let mean_gh = simd::sum([dy, weight, x], |[dy, w, x]| dy * w * (x - mean) * scale) / n as f32;
            for i in 0..n {
                let h = (x[i] - mean) * scale;
                dweight[i] += dy[i] * h;
                dbias[i] += dy[i];
                dx[i] = scale * (dy[i] * weight[i] - mean_g - h * mean_gh);
            }
        }
    }
}
