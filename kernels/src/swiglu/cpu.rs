//! SwiGLU on the CPU.

use super::SwiGlu;
use crate::cpu::prelude::*;

impl Operation<Flex, 1> for SwiGlu {
    type Kept = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], FlexTensor) {
        let [batch, time, width] = dims(&x);
        let n = width / 2;
        let y = by_rows(ROWS, [(values(&float32(x.clone())), width)], n, |[x], y| forward_rows(x, y, n));
        ([tensor_of_type(y, [batch, time, n], x.dtype())], x)
    }

    fn backward(&self, x: FlexTensor, dy: FlexTensor) -> [FlexTensor; 1] {
        let (dtype, shape) = (x.dtype(), x.layout().shape().clone());
        let [_, _, n] = dims(&dy);
        let (x, dy) = (float32(x), float32(dy));
        let inputs = [(values(&x), 2 * n), (values(&dy), n)];
        [tensor_of_type(by_rows(ROWS, inputs, 2 * n, |[x, dy], dx| backward_rows(x, dy, dx, n)), shape, dtype)]
    }
}

/// Rows per task.
const ROWS: usize = 32;

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
