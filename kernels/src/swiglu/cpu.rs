//! SwiGLU on the CPU.

use super::SwiGlu;
use crate::cpu::prelude::*;

impl Operation<Flex, 1> for SwiGlu {
    type Kept = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], FlexTensor) {
        let [batch, time, width] = dims(&x);
        let y = forward(values(&float32(x.clone())), width / 2);
        ([stored(y, [batch, time, width / 2], x.dtype())], x)
    }

    fn backward(&self, x: FlexTensor, dy: FlexTensor) -> [FlexTensor; 1] {
        let (dtype, shape) = (x.dtype(), x.layout().shape().clone());
        let [_, _, n] = dims(&dy);
        [stored(backward(values(&float32(x)), values(&float32(dy)), n), shape, dtype)]
    }
}

/// Rows one task takes.
const ROWS: usize = 32;

/// `[rows, n]` of `x` `[rows, 2 n]`.
fn forward(x: &[f32], n: usize) -> Vec<f32> {
    let mut y = unfilled(x.len() / 2);
    y.par_chunks_mut(ROWS * n).zip(x.par_chunks(ROWS * 2 * n)).for_each(|(y, x)| forward_rows(x, y, n));
    y
}

/// Gradient with respect to `x`, given that of the output.
fn backward(x: &[f32], dy: &[f32], n: usize) -> Vec<f32> {
    let mut dx = unfilled(x.len());
    let chunks = dx.par_chunks_mut(ROWS * 2 * n).zip(x.par_chunks(ROWS * 2 * n)).zip(dy.par_chunks(ROWS * n));
    chunks.for_each(|((dx, x), dy)| backward_rows(x, dy, dx, n));
    dx
}

simd_versions! {
    fn forward_rows(x: &[f32], y: &mut [f32], n: usize) {
        for (x, y) in x.chunks_exact(2 * n).zip(y.chunks_exact_mut(n)) {
            let (gate, up) = x.split_at(n);
            for i in 0..n {
                y[i] = gate[i] / (1.0 + simd::exp(-gate[i])) * up[i];
            }
        }
    }

    fn backward_rows(x: &[f32], dy: &[f32], dx: &mut [f32], n: usize) {
        for ((x, dy), dx) in x.chunks_exact(2 * n).zip(dy.chunks_exact(n)).zip(dx.chunks_exact_mut(2 * n)) {
            let ((gate, up), (dgate, dup)) = (x.split_at(n), dx.split_at_mut(n));
            for i in 0..n {
                let sigmoid = 1.0 / (1.0 + simd::exp(-gate[i]));
                dup[i] = dy[i] * gate[i] * sigmoid;
                dgate[i] = dy[i] * up[i] * sigmoid * (gate[i] * (1.0 - sigmoid) + 1.0);
            }
        }
    }
}
