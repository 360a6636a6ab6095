//! Rotary positions on the CPU, in place: each pair of a head's values is rotated by its position's
//! angle. The backward rotates back.

use super::Rotate;
use crate::cpu::prelude::*;

/// Positions per task.
const ROWS: usize = 32;

impl Operation<Flex, 1> for Rotate {
    type Kept = ();

    fn forward(&self, [qkv]: [FlexTensor; 1]) -> ([FlexTensor; 1], ()) {
        ([self.rotated_on_cpu(qkv, 1.0)], ())
    }

    fn backward(&self, (): (), dy: FlexTensor) -> [FlexTensor; 1] {
        [self.rotated_on_cpu(dy, -1.0)]
    }
}

impl Rotate {
    /// Rotates queries and keys of `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]` in
    /// place, by `sign` times their angles.
    fn rotated_on_cpu(&self, qkv: FlexTensor, sign: f32) -> FlexTensor {
        let (dtype, mut qkv, heads) = (qkv.dtype(), float32(qkv), self.heads);
        let tables = [&self.rotary.cos, &self.rotary.sin].map(|table| float32(flex(table.clone())));
        let [cos, sin] = tables.each_ref().map(values); // [time, head_size / 2]
        let (width, half) = (heads.width(), heads.head_size / 2);
        let rotated = heads.query_width() + heads.kv_width();
        let time = cos.len() / half;
        values_mut(&mut qkv).par_chunks_mut(ROWS * width).enumerate().for_each(|(chunk, rows)| {
            for (i, row) in rows.chunks_exact_mut(width).enumerate() {
                let first = (chunk * ROWS + i) % time * half;
                rotate_row(&mut row[..rotated], &cos[first..][..half], &sin[first..][..half], sign);
            }
        });
        cast(qkv, dtype.into())
    }
}

simd_versions! {
    // Rotates the heads of one position: (a, b) becomes (a cos - b sin, b cos + a sin).
    fn rotate_row(row: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
        let half = cos.len();
        for head in row.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for i in 0..half {
                let (x, y, sin) = (a[i], b[i], sign * sin[i]);
                a[i] = x * cos[i] - y * sin;
                b[i] = y * cos[i] + x * sin;
            }
        }
    }
}
