//! RMSNorm: of every row of a tensor, or of every head's query and key inside the joint projection (QK-norm). One pass a row
//! forward, one backward, with the root mean square computed again rather than stored.

use rayon::prelude::*;

use super::cpu_layer::ROWS;
use crate::cpu::tensor::unfilled;
use crate::simd::add;
use crate::simd_versions;
use crate::{Heads, simd};

/// Divides each row of `x` (rows of `weight.len()` values) by its root mean square and scales it.
pub fn forward(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let mut y = unfilled(x.len());
    let chunk = ROWS * weight.len();
    y.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(y, x)| forward_rows(x, weight, y, epsilon));
    y
}

/// Gradients with respect to `x` and `weight`, given that of the output.
pub fn backward(x: &[f32], weight: &[f32], dy: &[f32], epsilon: f32) -> (Vec<f32>, Vec<f32>) {
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
    (dx, sum(&partial, n))
}

/// As [`forward`] for each head's query, with the first of `weights` `[head_size]`, and each head's key, with the second, inside
/// `qkv` `[positions, (n_head + 2 n_kv_head) head_size]`; the values stay.
pub fn forward_heads(qkv: &[f32], weights: [&[f32]; 2], heads: Heads, epsilon: f32) -> Vec<f32> {
    let mut y = unfilled(qkv.len());
    let (width, [q, k]) = (heads.width(), normed(heads));
    y.par_chunks_mut(ROWS * width).zip(qkv.par_chunks(ROWS * width)).for_each(|(y, x)| {
        y.copy_from_slice(x);
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            forward_rows(&x[q.clone()], weights[0], &mut y[q.clone()], epsilon);
            forward_rows(&x[k.clone()], weights[1], &mut y[k.clone()], epsilon);
        }
    });
    y
}

/// Gradients with respect to `qkv` and the two weights, given that of [`forward_heads`]'s output.
pub fn backward_heads(
    qkv: &[f32],
    weights: [&[f32]; 2],
    dy: &[f32],
    heads: Heads,
    epsilon: f32,
) -> (Vec<f32>, [Vec<f32>; 2]) {
    let mut dqkv = unfilled(qkv.len());
    let (width, [q, k]) = (heads.width(), normed(heads));
    let chunk = ROWS * width;
    let chunks = dqkv.par_chunks_mut(chunk).zip(qkv.par_chunks(chunk)).zip(dy.par_chunks(chunk));
    let partial: Vec<[Vec<f32>; 2]> = chunks
        .map(|((dx, x), dy)| {
            let mut sums = [vec![0.0; heads.head_size], vec![0.0; heads.head_size]];
            dx.copy_from_slice(dy);
            let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
            for ((x, dy), dx) in rows {
                for ((part, weight), sum) in [&q, &k].into_iter().zip(weights).zip(&mut sums) {
                    let part = || part.clone();
                    backward_rows(&x[part()], weight, &dy[part()], &mut dx[part()], sum, epsilon);
                }
            }
            sums
        })
        .collect();
    let of = |i: usize| partial.iter().map(move |sums| &sums[i]);
    (dqkv, [0, 1].map(|i| sum(of(i), heads.head_size)))
}

/// Where the queries and the keys stand in a position's joint projection.
fn normed(heads: Heads) -> [std::ops::Range<usize>; 2] {
    let (queries, keys) = (heads.query_width(), heads.kv_width());
    [0..queries, queries..queries + keys]
}

/// The sum of vectors of `n` values, first to last.
fn sum<'a>(vectors: impl IntoIterator<Item = &'a Vec<f32>>, n: usize) -> Vec<f32> {
    let mut total = vec![0.0; n];
    vectors.into_iter().for_each(|vector| add(&mut total, vector));
    total
}

/// The reciprocal of a row's root mean square.
#[inline(always)]
fn scale(x: &[f32], epsilon: f32) -> f32 {
    1.0 / (simd::sum([x], |[x]| x * x) / x.len() as f32 + epsilon).sqrt()
}

simd_versions! {
    fn forward_rows(x: &[f32], weight: &[f32], y: &mut [f32], epsilon: f32) {
        let n = weight.len();
        for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
            let scale = scale(x, epsilon);
            for i in 0..n {
                y[i] = x[i] * scale * weight[i];
            }
        }
    }

    // With h the normalised row and g = dy * weight: dx = (g - h * mean(g * h)) / root mean square.
    fn backward_rows(x: &[f32], weight: &[f32], dy: &[f32], dx: &mut [f32], dweight: &mut [f32], epsilon: f32) {
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
