//! RMSNorm of heads on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::QkNorm;
use crate::Heads;
use crate::bits::unfilled;
use crate::cpu::tensor::{float32, stored, values};
use crate::norm::{ROWS, backward_rows, forward_rows};
use crate::operation::Operation;
use crate::simd::sum_of;

impl Operation<Flex, 3> for QkNorm {
    type Kept = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 3]) -> ([FlexTensor; 1], Self::Kept) {
        let dtype = inputs[0].dtype();
        let kept = inputs.clone();
        let [qkv, query, key] = inputs.map(float32);
        let y = forward(values(&qkv), [values(&query), values(&key)], self.heads, self.epsilon);
        ([stored(y, qkv.layout().shape().clone(), dtype)], kept)
    }

    fn backward(&self, inputs: Self::Kept, dy: FlexTensor) -> [FlexTensor; 3] {
        let dtypes = inputs.each_ref().map(FlexTensor::dtype);
        let ([qkv, query, key], dy) = (inputs.map(float32), float32(dy));
        let weights = [values(&query), values(&key)];
        let (dqkv, [dquery, dkey]) = backward(values(&qkv), weights, values(&dy), self.heads, self.epsilon);
        let size = [self.heads.head_size];
        [
            stored(dqkv, qkv.layout().shape().clone(), dtypes[0]),
            stored(dquery, size, dtypes[1]),
            stored(dkey, size, dtypes[2]),
        ]
    }
}

/// As [`crate::rms_norm`] for each head's query, with the first of `weights` `[head_size]`, and
/// each head's key, with the second, inside `qkv` `[positions, (n_head + 2 n_kv_head) head_size]`;
/// the values stay.
fn forward(qkv: &[f32], weights: [&[f32]; 2], heads: Heads, epsilon: f32) -> Vec<f32> {
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

/// Gradients with respect to `qkv` and the two weights, given that of [`forward`]'s output.
fn backward(qkv: &[f32], weights: [&[f32]; 2], dy: &[f32], heads: Heads, epsilon: f32) -> (Vec<f32>, [Vec<f32>; 2]) {
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
    (dqkv, [0, 1].map(|i| sum_of(of(i), heads.head_size)))
}

/// Where the queries and the keys stand in a position's joint projection.
fn normed(heads: Heads) -> [std::ops::Range<usize>; 2] {
    let (queries, keys) = (heads.query_width(), heads.kv_width());
    [0..queries, queries..queries + keys]
}
