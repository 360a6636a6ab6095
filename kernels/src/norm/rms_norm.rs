//! RMSNorm on the CPU: one pass a row forward, one backward, with the root mean square computed
//! again rather than stored.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::RmsNorm;
use crate::bits::unfilled;
use crate::cpu::tensor::{contiguous, float32, new, stored, values};
use crate::operation::Operation;
use crate::simd::sum_of;
use crate::{simd, simd_versions};

/// Rows one task takes: enough work to be worth a task, and the unit in which the weights'
/// gradients are summed.
pub(crate) const ROWS: usize = 32;

impl Operation<Flex, 2> for RmsNorm {
    type Kept = [FlexTensor; 2];

    fn forward(&self, inputs: [FlexTensor; 2]) -> ([FlexTensor; 1], Self::Kept) {
        let [x, weight] = inputs.map(contiguous);
        let y = forward(values(&x), values(&weight), self.epsilon);
        ([stored(y, x.layout().shape().clone(), self.to.into())], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 2] {
        let dy = float32(dy);
        let (dx, dweight) = backward(values(&x), values(&weight), values(&dy), self.epsilon);
        let n = dweight.len();
        [new(dx, x.layout().shape().clone()), new(dweight, [n])]
    }
}

/// Divides each row of `x` (rows of `weight.len()` values) by its root mean square and scales it.
fn forward(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let mut y = unfilled(x.len());
    let chunk = ROWS * weight.len();
    y.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(y, x)| forward_rows(x, weight, y, epsilon));
    y
}

/// Gradients with respect to `x` and `weight`, given that of the output.
fn backward(x: &[f32], weight: &[f32], dy: &[f32], epsilon: f32) -> (Vec<f32>, Vec<f32>) {
    let n = weight.len();
    let mut dx = unfilled(x.len());
    let chunk = ROWS * n;
    let chunks = dx.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).zip(dy.par_chunks(chunk));
    let partial: Vec<Vec<f32>> = chunks
        .map(|((dx, x), dy)| {
            let mut dweight = vec![0.0; n];
            backward_rows(x, weight, dy, dx, &mut dweight, epsilon);
            dweight
        })
        .collect();
    (dx, sum_of(&partial, n))
}

/// The reciprocal of a row's root mean square.
#[inline(always)]
fn scale(x: &[f32], epsilon: f32) -> f32 {
    1.0 / (simd::sum([x], |[x]| x * x) / x.len() as f32 + epsilon).sqrt()
}

simd_versions! {
    pub(crate) fn forward_rows(x: &[f32], weight: &[f32], y: &mut [f32], epsilon: f32) {
        let n = weight.len();
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            let scale = scale(x, epsilon);
            for i in 0..n {
                y[i] = x[i] * scale * weight[i];
            }
        }
    }

    // With h the normalised row and g = dy * weight: dx = (g - h * mean(g * h)) / root mean square.
    pub(crate) fn backward_rows(x: &[f32], weight: &[f32], dy: &[f32], dx: &mut [f32], dweight: &mut [f32], epsilon: f32) {
        let n = weight.len();
        let dweight = &mut dweight[..n];
        for ((x, dy), dx) in x.chunks_exact(n).zip(dy.chunks_exact(n)).zip(dx.chunks_exact_mut(n)) {
            let scale = scale(x, epsilon);
            let mean_gh = simd::sum([dy, weight, x], |[dy, w, x]| dy * w * x) * scale / n as f32;
            for i in 0..n {
                let h = x[i] * scale;
                dweight[i] += dy[i] * h;
                dx[i] = scale * (dy[i] * weight[i] - h * mean_gh);
            }
        }
    }
}
