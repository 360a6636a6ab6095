//! LayerNorm and RMSNorm on the CPU: row by row in forward and backward, with the statistics
//! recomputed instead of stored.

use super::{LayerNorm, RmsNorm};
use crate::{cpu::prelude::*, simd::sum_of};

/// Rows per task: enough work to be worth a task, and the unit in which the weights' gradients are
/// summed.
pub(crate) const ROWS: usize = 32;

impl Operation<Flex, 3> for LayerNorm {
    type Kept = [FlexTensor; 2];

    fn begins_branch(&self) -> bool {
        self.0.begins_branch
    }

    fn forward(&self, inputs: [FlexTensor; 3]) -> ([FlexTensor; 1], Self::Kept) {
        let [x, weight, bias] = inputs.map(contiguous);
        let (weights, biases) = (values(&weight), values(&bias));
        let y = by_rows(ROWS, [(values(&x), weights.len())], weights.len(), |[x], y| {
            layer_norm_rows(x, weights, biases, y, self.0.epsilon)
        });
        ([tensor_of_type(y, x.layout().shape().clone(), self.0.to.into())], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 3] {
        let (dy, weight) = (float32(dy), values(&weight));
        let n = weight.len();
        let (dx, mut dweight) = backward_by_rows(values(&x), values(&dy), [n, 2 * n], |x, dy, dx, sums| {
            let (dweight, dbias) = sums.split_at_mut(n);
            layer_norm_rows_backward(x, weight, dy, dx, dweight, dbias, self.0.epsilon);
        });
        let dbias = dweight.split_off(n);
        [tensor_of(dx, x.layout().shape().clone()), tensor_of(dweight, [n]), tensor_of(dbias, [n])]
    }
}

impl Operation<Flex, 2> for RmsNorm {
    type Kept = [FlexTensor; 2];

    fn begins_branch(&self) -> bool {
        self.0.begins_branch
    }

    fn forward(&self, inputs: [FlexTensor; 2]) -> ([FlexTensor; 1], Self::Kept) {
        let [x, weight] = inputs.map(contiguous);
        let weights = values(&weight);
        let y = by_rows(ROWS, [(values(&x), weights.len())], weights.len(), |[x], y| {
            rms_norm_rows(x, weights, y, self.0.epsilon)
        });
        ([tensor_of_type(y, x.layout().shape().clone(), self.0.to.into())], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 2] {
        let (dy, weight) = (float32(dy), values(&weight));
        let n = weight.len();
        let (dx, dweight) = backward_by_rows(values(&x), values(&dy), [n, n], |x, dy, dx, dweight| {
            rms_norm_rows_backward(x, weight, dy, dx, dweight, self.0.epsilon);
        });
        [tensor_of(dx, x.layout().shape().clone()), tensor_of(dweight, [n])]
    }
}

/// The gradient of `x`, some rows of `width` values at a time, and that of `n` weights: `backward`
/// gets `x` and `dy`, writes the first and adds to the second.
pub(crate) fn backward_by_rows(
    x: &[f32],
    dy: &[f32],
    [width, n]: [usize; 2],
    backward: impl Fn(&[f32], &[f32], &mut [f32], &mut [f32]) + Sync,
) -> (Vec<f32>, Vec<f32>) {
    let mut dx = unfilled(x.len());
    let chunk = ROWS * width;
    let chunks = dx.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).zip(dy.par_chunks(chunk));
    let partial = chunks.map(|((dx, x), dy)| {
        let mut sums = vec![0.0; n];
        backward(x, dy, dx, &mut sums);
        sums
    });
    let dweights = sum_of(&partial.collect::<Vec<_>>(), n);
    (dx, dweights)
}

/// Mean and reciprocal standard deviation of a row.
#[inline(always)]
fn statistics(x: &[f32], epsilon: f32) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = simd::sum([x], |[x]| x) / n;
    let variance = simd::sum([x], |[x]| (x - mean) * (x - mean)) / n;
    (mean, 1.0 / (variance + epsilon).sqrt())
}

/// The reciprocal of a row's root mean square.
#[inline(always)]
fn reciprocal_rms(x: &[f32], epsilon: f32) -> f32 {
    1.0 / (simd::sum([x], |[x]| x * x) / x.len() as f32 + epsilon).sqrt()
}

simd_versions! {
    // LayerNorm of each row.
    fn layer_norm_rows(x: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32], epsilon: f32) {
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
    fn layer_norm_rows_backward(
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

    /// RMSNorm of each row.
    pub(crate) fn rms_norm_rows(x: &[f32], weight: &[f32], y: &mut [f32], epsilon: f32) {
        let n = weight.len();
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            let scale = reciprocal_rms(x, epsilon);
            for i in 0..n {
                y[i] = x[i] * scale * weight[i];
            }
        }
    }

    // With h the normalised row and g = dy * weight: dx = (g - h * mean(g * h)) / root mean square.
    pub(crate) fn rms_norm_rows_backward(x: &[f32], weight: &[f32], dy: &[f32], dx: &mut [f32], dweight: &mut [f32], epsilon: f32) {
        let n = weight.len();
        let dweight = &mut dweight[..n];
        for ((x, dy), dx) in x.chunks_exact(n).zip(dy.chunks_exact(n)).zip(dx.chunks_exact_mut(n)) {
            let scale = reciprocal_rms(x, epsilon);
            let mean_gh = simd::sum([dy, weight, x], |[dy, w, x]| dy * w * x) * scale / n as f32;
            for i in 0..n {
                let h = x[i] * scale;
                dweight[i] += dy[i] * h;
                dx[i] = scale * (dy[i] * weight[i] - h * mean_gh);
            }
        }
    }
}
