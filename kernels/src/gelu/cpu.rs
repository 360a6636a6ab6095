//! GELU in its tanh form, written with a sigmoid: `(1 + tanh(u)) / 2 = 1 / (1 + e^(-2u))`.

use burn::tensor::bf16;
use rayon::prelude::*;

use crate::cpu::convert::in_float32;
use crate::cpu::tensor::unfilled;
use crate::simd::exp;
use crate::simd_versions;

/// Values one task takes.
const CHUNK: usize = 8192;
/// `2 sqrt(2 / pi)`, so that the exponent is `-(A x + A B x^3)`.
const A: f32 = 1.595_769;
const B: f32 = 0.044_715;

/// GELU of every value.
pub fn forward(x: &[f32]) -> Vec<f32> {
    let mut y = unfilled(x.len());
    y.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(y, x)| forward_chunk(x, y));
    y
}

/// Gradient with respect to `x`, given that of the output.
pub fn backward(x: &[f32], dy: &[f32]) -> Vec<f32> {
    let mut dx = unfilled(x.len());
    dx.par_chunks_mut(CHUNK)
        .zip(x.par_chunks(CHUNK))
        .zip(dy.par_chunks(CHUNK))
        .for_each(|((dx, x), dy)| backward_chunk(x, dy, dx));
    dx
}

/// [`forward`] of bfloat16.
pub fn forward_bf16(x: &[bf16]) -> Vec<bf16> {
    in_float32([x], |[x], y| forward_chunk(x, y))
}

/// [`backward`] of bfloat16.
pub fn backward_bf16(x: &[bf16], dy: &[bf16]) -> Vec<bf16> {
    in_float32([x, dy], |[x, dy], dx| backward_chunk(x, dy, dx))
}

simd_versions! {
    fn forward_chunk(x: &[f32], y: &mut [f32]) {
        for (x, y) in x.iter().zip(y) {
            let u = A * x * (B * x).mul_add(*x, 1.0);
            *y = x / (1.0 + exp(-u));
        }
    }

    fn backward_chunk(x: &[f32], dy: &[f32], dx: &mut [f32]) {
        for ((x, dy), dx) in x.iter().zip(dy).zip(dx) {
            let u = A * x * (B * x).mul_add(*x, 1.0);
            let sigmoid = 1.0 / (1.0 + exp(-u));
            let du = A * (3.0 * B * x).mul_add(*x, 1.0);
            *dx = dy * sigmoid * (x * (1.0 - sigmoid)).mul_add(du, 1.0);
        }
    }
}
