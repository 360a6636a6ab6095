//! RMSNorm of each head's query and key, inside the joint projection.

use super::QkNorm;
use crate::norm::gpu::{LayoutLaunch, NormKind, Share, backward_rows, forward_rows, halves};
use crate::{Heads, gpu::prelude::*, gpu::sum::sum_groups};

impl Operation<CubeBackend, 3> for QkNorm {
    type Kept = [CubeTensor; 3];

    fn forward(&self, inputs: [CubeTensor; 3]) -> ([CubeTensor; 1], Self::Kept) {
        (Operation::<CubeBackend, 3>::infer(self, inputs.clone()), inputs)
    }

    fn backward(&self, inputs: Self::Kept, dy: CubeTensor) -> [CubeTensor; 3] {
        backward(inputs, dy, self.epsilon, self.heads)
    }

    // Without the forward's clones, so that the norm works in place if nothing else holds the
    // projection.
    fn infer(&self, [qkv, query, key]: [CubeTensor; 3]) -> [CubeTensor; 1] {
        let (qkv, query, key) = (contiguous(qkv), float32(query), float32(key));
        let (layout, vector, share, rows) = layout(&qkv, self.heads, qkv.can_mut());
        let grid = Grid::cubes(&[&qkv], rows.div_ceil(share.rows()), share.units());
        let (types, (y, out), epsilon) = ([elem(qkv.dtype); 2], reuse_or_new(&qkv, 0), self.epsilon);
        // SAFETY: the kernel checks every index against `rows` and the head's width.
        unsafe { launch!(forward_rows, grid, vector, [qkv, query, key, out], layout, epsilon, share, types) };
        [y]
    }
}

/// The layout of `qkv`, the vector width, how units share a head, and the number of heads that the
/// kernel visits. If `qkv` is changed `in_place`, the kernel skips the values.
fn layout(qkv: &CubeTensor, heads: Heads, in_place: bool) -> (LayoutLaunch, usize, Share, usize) {
    let vector = vector_size(heads.head_size);
    let width = heads.head_size / vector;
    let normed = heads.n_head + heads.n_kv_head;
    let all = normed + heads.n_kv_head;
    let visited = if in_place { normed } else { all };
    let rows = qkv.meta.num_elements() / heads.width() * visited;
    let share = Share::of(width, NormKind::RmsOfHeads);
    (LayoutLaunch::new(rows, width, visited, heads.n_head, normed, all), vector, share, rows)
}

/// Gradients of `qkv`, `query` and `key`, given the gradient `dy` of the output.
fn backward(inputs: [CubeTensor; 3], dy: CubeTensor, epsilon: f32, heads: Heads) -> [CubeTensor; 3] {
    let dtypes = inputs.each_ref().map(|input| input.dtype);
    let [qkv, query, key] = inputs;
    let (qkv, query, key, dy) = (contiguous(qkv), float32(query), float32(key), contiguous(cast(dy, dtypes[0])));
    let (layout, vector, share, rows) = layout(&qkv, heads, dy.can_mut());
    let (steps, cubes, groups) = share.groups(rows);
    let sums = unfilled(&qkv, [groups, 2 * heads.head_size], DType::F32);
    let grid = Grid::cubes(&[&qkv, &sums], cubes, share.units());
    let (types, (dqkv, out)) = ([elem(qkv.dtype); 2], reuse_or_new(&dy, 3));
    // SAFETY: as above; `sums` has a row for each group.
    unsafe {
        launch!(backward_rows, grid, vector, [qkv, query, key, dy, out, &sums], layout, steps, epsilon, share, types);
    }
    let [dquery, dkey] = halves(sum_groups(sums));
    [dqkv, cast(dquery, dtypes[1]), cast(dkey, dtypes[2])]
}
