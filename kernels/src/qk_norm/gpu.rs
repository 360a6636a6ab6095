//! RMSNorm of each head's query and key where they lie, inside the joint projection.

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::{cast, slice};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::QkNorm;
use crate::Heads;
use crate::gpu::launch::{Grid, launch};
use crate::gpu::sum::{of_groups, over_lanes};
use crate::gpu::tensor::{contiguous, elem, float32, unfilled, vector_size, written};
use crate::norm::{MOST_GROUPS, Share};
use crate::operation::Operation;

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

fn layout(heads: Heads, in_place: bool, vector: usize) -> (usize, LayoutLaunch) {
    let normed = heads.n_head + heads.n_kv_head;
    let all = normed + heads.n_kv_head;
    let visited = if in_place { normed } else { all };
    (visited, LayoutLaunch::new(visited, heads.n_head, normed, all, heads.head_size / vector))
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn qk_norm_kernel<T: Float, N: Size>(
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
    let mut squares = Vector::<f32, N>::new(f32::new(0.0));
    #[unroll]
    for i in 0..share.each {
        let column = i * lanes + lane;
        if row < rows && column < layout.width {
            values[i] = Vector::cast_from(x[first + column]);
            squares += values[i] * values[i];
        }
    }
    let size = f32::cast_from(layout.width * N::value());
    let sum = over_lanes(squares.vector_sum(), &mut scratch, comptime!(share.side), comptime!(share.units()));
    let scale = Vector::new(f32::new(1.0) / (sum / size + epsilon).sqrt());
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

// As `norm_backward_kernel` without a mean; what a head of queries adds goes to the first half of
// its group's sums, what a head of keys adds to the second.
#[cube(launch_unchecked, address_type = "dynamic")]
fn qk_norm_backward_kernel<T: Float, N: Size>(
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
        let mut squares = Vector::<f32, N>::new(f32::new(0.0));
        #[unroll]
        for i in 0..share.each {
            let column = i * lanes + lane;
            h[i] = Vector::new(f32::new(0.0));
            g[i] = Vector::new(f32::new(0.0));
            if row < rows && column < width {
                h[i] = Vector::cast_from(x[first + column]);
                g[i] = Vector::cast_from(dy[first + column]);
                squares += h[i] * h[i];
            }
        }
        let mean_square = over_lanes(squares.vector_sum(), &mut scratch, side, units) / size;
        let scale = Vector::new(f32::new(1.0) / (mean_square + epsilon).sqrt());
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
    let in_place = qkv.can_mut();
    let vector = vector_size(heads.head_size);
    let (visited, layout) = layout(heads, in_place, vector);
    let rows = qkv.meta.num_elements() / heads.width() * visited;
    let share = Share::of(heads.head_size / vector);
    let grid = Grid::cubes(&[&qkv], rows.div_ceil(share.rows()), share.units());
    let dtype = elem(qkv.dtype);
    let (y, written) = written(&qkv, 0);
    // SAFETY: the kernel looks at `rows` and the head's width before it reads or writes a place.
    unsafe {
        launch!(qk_norm_kernel, grid, vector, [qkv, query, key], written, rows, layout, epsilon, share, dtype);
    }
    y
}

/// Gradients of [`forward`]: of `qkv`, `query` and `key`, given that of its output.
fn backward(inputs: [CubeTensor; 3], dy: CubeTensor, epsilon: f32, heads: Heads) -> [CubeTensor; 3] {
    let dtypes = inputs.each_ref().map(|input| input.dtype);
    let [qkv, query, key] = inputs;
    let (qkv, query, key, dy) = (contiguous(qkv), float32(query), float32(key), contiguous(cast(dy, dtypes[0])));
    let in_place = dy.can_mut();
    let vector = vector_size(heads.head_size);
    let (visited, layout) = layout(heads, in_place, vector);
    let rows = qkv.meta.num_elements() / heads.width() * visited;
    let share = Share::of(heads.head_size / vector);
    let steps = rows.div_ceil(MOST_GROUPS * share.rows()).max(1);
    let count = rows.div_ceil(steps * share.rows()).max(1);
    let sums = unfilled(&qkv, [count * share.rows(), 2 * heads.head_size], DType::F32);
    let (grid, dtype) = (Grid::cubes(&[&qkv, &sums], count, share.units()), elem(qkv.dtype));
    let (dqkv, written) = written(&dy, 3);
    // SAFETY: as above; `sums` has a row for each group.
    unsafe {
        launch!(
            qk_norm_backward_kernel,
            grid,
            vector,
            [qkv, query, key, dy],
            written,
            sums.clone().into_buffer_arg(),
            rows,
            steps,
            layout,
            epsilon,
            share,
            dtype
        );
    }
    let sums = of_groups(sums);
    let [dquery, dkey] =
        [0, heads.head_size].map(|first| slice(sums.clone(), std::slice::from_ref(&(first..first + heads.head_size))));
    [dqkv, cast(dquery, dtypes[1]), cast(dkey, dtypes[2])]
}
