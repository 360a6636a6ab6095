//! Rotary positions on a GPU: each pair of a head's values is rotated by its position's angle, in
//! place if nothing else holds them.

use super::Rotate;
use crate::gpu::prelude::*;

impl Operation<CubeBackend, 1> for Rotate {
    type Kept = ();

    fn forward(&self, [qkv]: [CubeTensor; 1]) -> ([CubeTensor; 1], ()) {
        ([self.rotated_on_gpu(qkv, 1.0)], ())
    }

    fn backward(&self, (): (), dy: CubeTensor) -> [CubeTensor; 1] {
        [self.rotated_on_gpu(dy, -1.0)]
    }
}

impl Rotate {
    /// Rotates queries and keys inside `qkv` by their angles times `sign`: -1 rotates back.
    fn rotated_on_gpu(&self, qkv: CubeTensor, sign: f32) -> CubeTensor {
        let [cos, sin] = [&self.rotary.cos, &self.rotary.sin].map(|table| contiguous(cube(table.clone())));
        let (qkv, heads) = (contiguous(qkv), self.heads);
        let vector = vector_size(heads.head_size / 2);
        let half = heads.head_size / 2 / vector;
        let rotated = heads.n_head + heads.n_kv_head;
        let all = rotated + heads.n_kv_head;
        let time = cos.meta.shape()[0];
        let visited = if qkv.can_mut() { rotated } else { all };
        let length = qkv.meta.num_elements() / heads.width() * visited * half;
        let (grid, dtype) = (Grid::each(&[&qkv], length), elem(qkv.dtype));
        let (y, out) = reuse_or_new(&qkv, 0);
        // SAFETY: the kernel checks every index against `length`.
        unsafe {
            launch!(rotate, grid, vector, [qkv, cos, sin, out], length, time, half, all, visited, rotated, sign, dtype);
        }
        y
    }
}

// A unit has one vector of pairs: one vector of a head's first half, and the one at the same place
// in its second half. Heads from number `rotated` on are values, which are copied.
#[cube(launch_unchecked, address_type = "dynamic")]
fn rotate<T: Float, N: Size>(
    x: &[Vector<T, N>],
    cos: &[Vector<f32, N>],
    sin: &[Vector<f32, N>],
    y: &mut [Vector<T, N>],
    length: usize,
    time: usize,
    half: usize,
    heads: usize,
    visited: usize,
    rotated: usize,
    sign: f32,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS < length {
        let i = ABSOLUTE_POS % half;
        let head = ABSOLUTE_POS / half % visited;
        let position = ABSOLUTE_POS / half / visited;
        let first = (position * heads + head) * 2 * half + i;
        let second = first + half;
        if head < rotated {
            let angle = position % time * half + i;
            let (cos, sin) = (cos[angle], sin[angle] * Vector::new(sign));
            let a = Vector::<f32, N>::cast_from(x[first]);
            let b = Vector::<f32, N>::cast_from(x[second]);
            y[first] = Vector::cast_from(a * cos - b * sin);
            y[second] = Vector::cast_from(b * cos + a * sin);
        } else {
            y[first] = x[first];
            y[second] = x[second];
        }
    }
}
