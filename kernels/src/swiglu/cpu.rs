//! SwiGLU on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::SwiGlu;
use crate::bits::unfilled;
use crate::cpu::tensor::{dims, float32, stored, values};
use crate::operation::Operation;
use crate::simd::exp;
use crate::simd_versions;

impl Operation<Flex, 1> for SwiGlu {
    type Kept = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], FlexTensor) {
        let (kept, dtype) = (x.clone(), x.dtype());
        let x = float32(x);
        let [batch, time, width] = dims(&x);
        ([stored(forward(values(&x), width / 2), [batch, time, width / 2], dtype)], kept)
    }

    fn backward(&self, x: FlexTensor, dy: FlexTensor) -> [FlexTensor; 1] {
        let dtype = x.dtype();
        let (x, dy) = (float32(x), float32(dy));
        let [_, _, n] = dims(&dy);
        [stored(backward(values(&x), values(&dy), n), x.layout().shape().clone(), dtype)]
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
    dx.par_chunks_mut(ROWS * 2 * n)
        .zip(x.par_chunks(ROWS * 2 * n))
        .zip(dy.par_chunks(ROWS * n))
        .for_each(|((dx, x), dy)| backward_rows(x, dy, dx, n));
    dx
}

simd_versions! {
    fn forward_rows(x: &[f32], y: &mut [f32], n: usize) {
        for (x, y) in x.chunks_exact(2 * n).zip(y.chunks_exact_mut(n)) {
            let (gate, up) = x.split_at(n);
            for i in 0..n {
                y[i] = gate[i] / (1.0 + exp(-gate[i])) * up[i];
            }
        }
    }

    fn backward_rows(x: &[f32], dy: &[f32], dx: &mut [f32], n: usize) {
        for ((x, dy), dx) in x.chunks_exact(2 * n).zip(dy.chunks_exact(n)).zip(dx.chunks_exact_mut(2 * n)) {
            let ((gate, up), (dgate, dup)) = (x.split_at(n), dx.split_at_mut(n));
            for i in 0..n {
                let sigmoid = 1.0 / (1.0 + exp(-gate[i]));
                dup[i] = dy[i] * gate[i] * sigmoid;
                dgate[i] = dy[i] * up[i] * sigmoid * (gate[i] * (1.0 - sigmoid) + 1.0);
            }
        }
    }
}
