//! Rotary positions: each pair of a head's values turned by its position's angle, in place where
//! nothing else holds them.

use super::Rotate;
use crate::gpu::prelude::*;

impl Operation<CubeBackend, 1> for Rotate {
    type Kept = ();

    fn forward(&self, [qkv]: [CubeTensor; 1]) -> ([CubeTensor; 1], ()) {
        ([self.turned_on_gpu(qkv, 1.0)], ())
    }

    fn backward(&self, (): (), dy: CubeTensor) -> [CubeTensor; 1] {
        [self.turned_on_gpu(dy, -1.0)]
    }
}

impl Rotate {
    /// Queries and keys inside `qkv` turned by their angles times `sign`: -1 turns them back.
    fn turned_on_gpu(&self, qkv: CubeTensor, sign: f32) -> CubeTensor {
        let [cos, sin] = [&self.rotary.cos, &self.rotary.sin].map(|table| contiguous(cube(table.clone())));
        let (qkv, heads) = (contiguous(qkv), self.heads);
        let vector = vector_size(heads.head_size / 2);
        let half = heads.head_size / 2 / vector;
        let turned = heads.n_head + heads.n_kv_head;
        let all = turned + heads.n_kv_head;
        let time = cos.meta.shape()[0];
        let visited = if qkv.can_mut() { turned } else { all };
        let length = qkv.meta.num_elements() / heads.width() * visited * half;
        let (grid, dtype) = (Grid::each(&[&qkv], length), elem(qkv.dtype));
        let (y, out) = written(&qkv, 0);
        // SAFETY: the kernel checks every index against `length`.
        unsafe {
            launch!(turn, grid, vector, [qkv, cos, sin, out], length, time, half, all, visited, turned, sign, dtype);
        }
        y
    }
}

// A unit has one vector of pairs: of a head's first half and, in the same place, of its second. The
// heads from number `turned` on are values, which stay as they are.
#[cube(launch_unchecked, address_type = "dynamic")]
fn turn<T: Float, N: Size>(
    x: &[Vector<T, N>],
    cos: &[Vector<f32, N>],
    sin: &[Vector<f32, N>],
    y: &mut [Vector<T, N>],
    length: usize,
    time: usize,
    half: usize,
    heads: usize,
    visited: usize,
    turned: usize,
    sign: f32,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS < length {
        let i = ABSOLUTE_POS % half;
        let head = ABSOLUTE_POS / half % visited;
        let position = ABSOLUTE_POS / half / visited;
        let first = (position * heads + head) * 2 * half + i;
        let second = first + half;
        if head < turned {
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
