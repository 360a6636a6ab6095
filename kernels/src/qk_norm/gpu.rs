//! RMSNorm of each head's query and key where they lie, inside the joint projection.

use super::QkNorm;
use crate::Heads;
use crate::gpu::prelude::*;
use crate::gpu::sum::{of_groups, over_lanes};
use crate::norm::gpu::{Share, halves, row_scale};

impl Operation<CubeBackend, 3> for QkNorm {
    type Kept = [CubeTensor; 3];

    fn forward(&self, inputs: [CubeTensor; 3]) -> ([CubeTensor; 1], Self::Kept) {
        let kept = inputs.clone();
        let [qkv, query, key] = inputs;
        ([forward(qkv, query, key, self.epsilon, self.heads)], kept)
    }

    fn backward(&self, inputs: Self::Kept, dy: CubeTensor) -> [CubeTensor; 3] {
        backward(inputs, dy, self.epsilon, self.heads)
    }

    // Without the clones above, so that the norm may be put where the projection lies.
    fn infer(&self, [qkv, query, key]: [CubeTensor; 3]) -> [CubeTensor; 1] {
        [forward(qkv, query, key, self.epsilon, self.heads)]
    }
}

/// The heads of one position, in the order in which they lie: queries, keys, values.
#[derive(CubeLaunch, CubeType, Clone, Copy)]
struct Layout {
    /// Heads that this kernel goes through: all, or all but the values where these may stay as they
    /// are.
    visited: usize,
    queries: usize,
    /// Heads of queries and keys.
    normed: usize,
    all: usize,
    /// Vectors of a head.
    width: usize,
}

/// The layout for `qkv`, whose values stay where they are if it is changed `in_place`; the numbers
/// in a vector, how a head is shared, and the heads that the kernel goes through in all.
fn layout(qkv: &CubeTensor, heads: Heads, in_place: bool) -> (LayoutLaunch, usize, Share, usize) {
    let vector = vector_size(heads.head_size);
    let width = heads.head_size / vector;
    let normed = heads.n_head + heads.n_kv_head;
    let all = normed + heads.n_kv_head;
    let visited = if in_place { normed } else { all };
    let rows = qkv.meta.num_elements() / heads.width() * visited;
    (LayoutLaunch::new(visited, heads.n_head, normed, all, width), vector, Share::of(width, false), rows)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward_heads<T: Float, N: Size>(
    x: &[Vector<T, N>],
    query: &[Vector<f32, N>],
    key: &[Vector<f32, N>],
    y: &mut [Vector<T, N>],
    rows: usize,
    layout: Layout,
    epsilon: f32,
    #[comptime] share: Share,
    #[define(T)] _dtype: ElemType,
) {
    let lanes = comptime!(share.lanes());
    let mut scratch = Shared::<[f32]>::new_slice(comptime!(2 * share.units()));
    let unit = UNIT_POS as usize;
    let row = CUBE_POS * comptime!(share.rows()) + unit / lanes;
    let lane = unit % lanes;
    let head = row % layout.visited;
    let first = (row / layout.visited * layout.all + head) * layout.width;

    let mut values = Array::<Vector<f32, N>>::new(share.each);
    #[unroll]
    for i in 0..share.each {
        let column = i * lanes + lane;
        if row < rows && column < layout.width {
            values[i] = Vector::cast_from(x[first + column]);
        }
    }
    let scale = row_scale::<N>(&mut values, &mut scratch, layout.width, epsilon, share);
    #[unroll]
    for i in 0..share.each {
        let column = i * lanes + lane;
        if row < rows && column < layout.width {
            let mut value = values[i];
            if head < layout.queries {
                value *= scale * query[column];
            } else if head < layout.normed {
                value *= scale * key[column];
            }
            y[first + column] = Vector::cast_from(value);
        }
    }
}

// As `backward_rows` of RMSNorm without a mean; what a head of queries adds goes to the first half of
// its group's sums, what a head of keys adds to the second.
#[cube(launch_unchecked, address_type = "dynamic")]
fn backward_heads<T: Float, N: Size>(
    x: &[Vector<T, N>],
    query: &[Vector<f32, N>],
    key: &[Vector<f32, N>],
    dy: &[Vector<T, N>],
    dx: &mut [Vector<T, N>],
    sums: &mut [Vector<f32, N>],
    rows: usize,
    steps: usize,
    layout: Layout,
    epsilon: f32,
    #[comptime] share: Share,
    #[define(T)] _dtype: ElemType,
) {
    let lanes = comptime!(share.lanes());
    let (side, units) = comptime!((share.side, share.units()));
    let mut scratch = Shared::<[f32]>::new_slice(comptime!(2 * share.units()));
    let unit = UNIT_POS as usize;
    let group = CUBE_POS * comptime!(share.rows()) + unit / lanes;
    let lane = unit % lanes;
    let width = layout.width;
    let size = f32::cast_from(width * N::value());

    let mut dquery = Array::<Vector<f32, N>>::new(share.each);
    let mut dkey = Array::<Vector<f32, N>>::new(share.each);
    for step in 0..steps {
        let row = group * steps + step;
        let head = row % layout.visited;
        let first = (row / layout.visited * layout.all + head) * width;
        let mut h = Array::<Vector<f32, N>>::new(share.each);
        let mut g = Array::<Vector<f32, N>>::new(share.each);
        #[unroll]
        for i in 0..share.each {
            let column = i * lanes + lane;
            h[i] = Vector::new(f32::new(0.0));
            g[i] = Vector::new(f32::new(0.0));
            if row < rows && column < width {
                h[i] = Vector::cast_from(x[first + column]);
                g[i] = Vector::cast_from(dy[first + column]);
            }
        }
        let scale = row_scale::<N>(&mut h, &mut scratch, width, epsilon, share);
        let mut products = Vector::<f32, N>::new(f32::new(0.0));
        #[unroll]
        for i in 0..share.each {
            let column = i * lanes + lane;
            h[i] *= scale;
            if column < width {
                if head < layout.queries {
                    dquery[i] += g[i] * h[i];
                    g[i] *= query[column];
                } else if head < layout.normed {
                    dkey[i] += g[i] * h[i];
                    g[i] *= key[column];
                }
                products += g[i] * h[i];
            }
        }
        let mean = Vector::new(over_lanes(products.vector_sum(), &mut scratch, side, units) / size);
        #[unroll]
        for i in 0..share.each {
            let column = i * lanes + lane;
            if row < rows && column < width {
                let mut value = g[i];
                if head < layout.normed {
                    value = scale * (g[i] - h[i] * mean);
                }
                dx[first + column] = Vector::cast_from(value);
            }
        }
    }
    #[unroll]
    for i in 0..share.each {
        let column = i * lanes + lane;
        if column < width {
            sums[group * 2 * width + column] = dquery[i];
            sums[(group * 2 + 1) * width + column] = dkey[i];
        }
    }
}

/// `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]` with each query and key divided by its
/// root mean square and scaled by `query` or `key` `[head_size]`; in place where nothing else holds
/// it.
fn forward(qkv: CubeTensor, query: CubeTensor, key: CubeTensor, epsilon: f32, heads: Heads) -> CubeTensor {
    let (qkv, query, key) = (contiguous(qkv), float32(query), float32(key));
    let (layout, vector, share, rows) = layout(&qkv, heads, qkv.can_mut());
    let grid = Grid::cubes(&[&qkv], rows.div_ceil(share.rows()), share.units());
    let (dtype, (y, out)) = (elem(qkv.dtype), written(&qkv, 0));
    // SAFETY: the kernel looks at `rows` and the head's width before it reads or writes a place.
    unsafe { launch!(forward_heads, grid, vector, [qkv, query, key, out], rows, layout, epsilon, share, dtype) };
    y
}

/// Gradients of [`forward`]: of `qkv`, `query` and `key`, given that of its output.
fn backward(inputs: [CubeTensor; 3], dy: CubeTensor, epsilon: f32, heads: Heads) -> [CubeTensor; 3] {
    let dtypes = inputs.each_ref().map(|input| input.dtype);
    let [qkv, query, key] = inputs;
    let (qkv, query, key, dy) = (contiguous(qkv), float32(query), float32(key), contiguous(cast(dy, dtypes[0])));
    let (layout, vector, share, rows) = layout(&qkv, heads, dy.can_mut());
    let (steps, cubes, groups) = share.groups(rows);
    let sums = unfilled(&qkv, [groups, 2 * heads.head_size], DType::F32);
    let grid = Grid::cubes(&[&qkv, &sums], cubes, share.units());
    let (dtype, (dqkv, out)) = (elem(qkv.dtype), written(&dy, 3));
    // SAFETY: as above; `sums` has a row for each group.
    unsafe {
        launch!(
            backward_heads,
            grid,
            vector,
            [qkv, query, key, dy, out, &sums],
            rows,
            steps,
            layout,
            epsilon,
            share,
            dtype
        );
    }
    let [dquery, dkey] = halves(of_groups(sums));
    [dqkv, cast(dquery, dtypes[1]), cast(dkey, dtypes[2])]
}
