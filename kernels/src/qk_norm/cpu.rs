//! RMSNorm of heads on the CPU, some positions at a time: of each head's query with one weight, and
//! of each head's key with another, inside the joint projection.

use super::QkNorm;
use crate::cpu::prelude::*;
use crate::norm::cpu::{ROWS, backward_by_rows, rms_norm_rows, rms_norm_rows_backward};

impl Operation<Flex, 3> for QkNorm {
    type Kept = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 3]) -> ([FlexTensor; 1], Self::Kept) {
        let kept = inputs.clone();
        let [qkv, query, key] = inputs.map(float32);
        let (width, [q, k], weights) = (self.heads.width(), self.normed(), [values(&query), values(&key)]);
        let y = by_rows(ROWS, [(values(&qkv), width)], width, |[x], y: &mut [f32]| {
            y.copy_from_slice(x);
            for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                rms_norm_rows(&x[q.clone()], weights[0], &mut y[q.clone()], self.epsilon);
                rms_norm_rows(&x[k.clone()], weights[1], &mut y[k.clone()], self.epsilon);
            }
        });
        ([tensor_of_type(y, qkv.layout().shape().clone(), kept[0].dtype())], kept)
    }

    fn backward(&self, inputs: Self::Kept, dy: FlexTensor) -> [FlexTensor; 3] {
        let dtypes = inputs.each_ref().map(FlexTensor::dtype);
        let ([qkv, query, key], dy) = (inputs.map(float32), float32(dy));
        let (width, n, parts) = (self.heads.width(), self.heads.head_size, self.normed());
        let weights = [values(&query), values(&key)];
        let (dqkv, mut dquery) = backward_by_rows(values(&qkv), values(&dy), [width, 2 * n], |x, dy, dx, sums| {
            dx.copy_from_slice(dy);
            let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
            for ((x, dy), dx) in rows {
                for ((part, weight), sum) in parts.iter().zip(weights).zip(sums.chunks_exact_mut(n)) {
                    let part = || part.clone();
                    rms_norm_rows_backward(&x[part()], weight, &dy[part()], &mut dx[part()], sum, self.epsilon);
                }
            }
        });
        let dkey = dquery.split_off(n);
        [
            tensor_of_type(dqkv, qkv.layout().shape().clone(), dtypes[0]),
            tensor_of_type(dquery, [n], dtypes[1]),
            tensor_of_type(dkey, [n], dtypes[2]),
        ]
    }
}

impl QkNorm {
    /// Ranges of the queries and the keys in a position's joint projection.
    fn normed(&self) -> [std::ops::Range<usize>; 2] {
        let (queries, keys) = (self.heads.query_width(), self.heads.kv_width());
        [0..queries, queries..queries + keys]
    }
}
