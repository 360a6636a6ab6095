//! The gradient of causal attention on a GPU: the weights are recomputed, tile by tile, from the
//! log-sum-exp of each row ([Dao et al. 2022](https://arxiv.org/abs/2205.14135), algorithm 4). One
//! kernel owns queries and sweeps over keys, another owns keys and sweeps over queries. Each number
//! has one owner, which adds in a fixed order, so no atomics are needed and the bits repeat.
//!
//! In the paper's letters: scores are S = Q Kᵀ, weights are their softmax P, dP = dY Vᵀ, and dS = P
//! (dP - dot), where a row's dot is the sum of dY Y. dQ and dK are multiplied by the scale of the
//! scores at the end.

#[cfg(feature = "cuda")]
use super::warpgroups;
use super::{CausalAttention, gpu_layout::Layout, gpu_layout::Shape};
use crate::gpu::tile::{Footprint, Products, ProductsFamily, Tile, Units, load, own_column, sum_of_lanes};
use crate::{Heads, gpu::engine::Engine, gpu::prelude::*, gpu::tensor_cores::TensorCores};

/// Units of a cube of [`row_dots`].
const ROW_UNITS: usize = 128;

/// `dots[row] = sum(dy * y)` over a head, for every row of every head: `[batch * n_head, time]`.
/// Units take rows in memory order, so that adjacent units read adjacent vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn row_dots<T: Float, N: Size>(
    y: &[Vector<T, N>],
    dy: &[Vector<T, N>],
    dots: &mut [f32],
    rows: usize,
    n_head: usize,
    time: usize,
    #[comptime] vectors: usize,
    #[define(T)] _type: ElemType,
) {
    let (lanes, together) = comptime!(row_units(vectors));
    let mut parts = Shared::<[f32]>::new_slice(ROW_UNITS);
    let unit = UNIT_POS as usize;
    let (row, lane) = (CUBE_POS * together + unit / lanes, unit % lanes);
    let mut sums = Vector::<f32, N>::zeroed();
    if unit < comptime!(together * lanes) && row < rows {
        #[unroll]
        for i in 0..comptime!(vectors.div_ceil(lanes)) {
            let vector = lane + i * lanes;
            if vector < vectors {
                let at = row * vectors + vector;
                sums = fma(Vector::<f32, N>::cast_from(y[at]), Vector::<f32, N>::cast_from(dy[at]), sums);
            }
        }
    }
    parts[unit] = sum_of_lanes::<N>(sums);
    sync_cube();
    let row = CUBE_POS * together + unit;
    if unit < together && row < rows {
        let mut dot = 0.0f32;
        #[unroll]
        for lane in 0..lanes {
            dot += parts[unit * lanes + lane];
        }
        let (position, head) = (row / n_head, row % n_head);
        dots[(position / time * n_head + head) * time + position % time] = dot;
    }
}

/// Units that share a row of `vectors` vectors, and rows per cube of [`ROW_UNITS`].
const fn row_units(vectors: usize) -> (usize, usize) {
    let lanes = if vectors < ROW_UNITS { vectors } else { ROW_UNITS };
    (lanes, ROW_UNITS / lanes)
}

/// Shared memory of [`queries_backward`]: queries and dY, keys and values; S and dP; dS as weights.
pub const QUERIES: Footprint = Footprint { vectors: 2, scores: 2, weights: 1, of_columns: 0 };

/// Shared memory of [`keys_backward`]: the same, P as weights too, and two numbers for each query.
pub const KEYS: Footprint = Footprint { vectors: 2, scores: 2, weights: 2, of_columns: 2 };

/// The gradient of a tile of queries: sweeps over the keys that they saw.
#[cube(launch_unchecked, address_type = "dynamic")]
fn queries_backward<T: Float, W: Float, N: Size, P: ProductsFamily>(
    qkv: &[Vector<T, N>],
    dy: &[Vector<T, N>],
    log_sums: &[f32],
    dots: &[f32],
    dqkv: &mut [Vector<T, N>],
    layout: Layout,
    #[comptime] drops: bool,
    #[comptime] tile: Tile,
    #[define(T, W)] _types: [ElemType; 2],
) {
    let (rows, columns, vectors, parts) = comptime!((tile.rows, tile.columns, tile.vectors, tile.parts()));
    let (stride, score_stride, weight_stride) = comptime!((tile.stride(), tile.score_stride(), tile.weight_stride()));
    let mut queries = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(rows * stride), 32usize);
    let mut gradients = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(rows * stride), 32usize);
    let mut keys = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(columns * stride), 32usize);
    let mut values = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(columns * stride), 32usize);
    let mut scores = Shared::<[f32]>::new_aligned_slice(comptime!(rows * score_stride), 32usize);
    let mut dp = Shared::<[f32]>::new_aligned_slice(comptime!(rows * score_stride), 32usize);
    let mut ds = Shared::<[W]>::new_aligned_slice(comptime!(rows * weight_stride), 32usize);
    let mut factors = Shared::<[f32]>::new_slice(rows);

    let time = layout.time;
    // The last queries saw the most keys, so they start first.
    let first = (time.div_ceil(rows) - 1 - CUBE_POS_X as usize) * rows;
    let (head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let (width, out_width) = (layout.all_heads() * vectors, layout.n_head * vectors);
    let start = row * time * width;
    let queries_at = start + head * vectors + first * width;
    let keys_at = start + layout.keys_for(head) * vectors;
    let values_at = keys_at + layout.n_kv_head * vectors;
    let gradients_at = (row * time + first) * out_width + head * vectors;

    let my_row = UNIT_POS as usize / parts;
    let part = UNIT_POS as usize % parts;
    let position = first + my_row;
    let weight_row = (row * layout.n_head + head) * time + position;
    let mut log_sum = 0.0f32;
    let mut dot = 0.0f32;
    let mut seen_end = 0usize;
    if position < time {
        log_sum = log_sums[weight_row];
        dot = dots[weight_row];
        seen_end = position + 1;
    }
    if part == 0 {
        factors[my_row] = layout.scale;
    }
    load::<T, N>(qkv, queries_at, width, time - first, &mut queries, rows, tile);
    load::<T, N>(dy, gradients_at, out_width, time - first, &mut gradients, rows, tile);
    let mut sum = <P::Of<T, W, N> as Products<T, W, N>>::zeros(tile);

    let blocks = usize::min(first + rows, time).div_ceil(columns);
    for block in 0..blocks {
        let from = block * columns;
        load::<T, N>(qkv, keys_at + from * width, width, time - from, &mut keys, columns, tile);
        load::<T, N>(qkv, values_at + from * width, width, time - from, &mut values, columns, tile);
        sync_cube();
        // S and dP.
        P::Of::<T, W, N>::scores(&queries, &keys, &mut scores, tile);
        P::Of::<T, W, N>::scores(&gradients, &values, &mut dp, tile);
        sync_cube();
        // dS.
        #[unroll]
        for i in 0..comptime!(tile.own()) {
            let column = own_column(i, my_row, part, tile);
            let at = my_row * score_stride + column;
            let mut value = 0.0f32;
            if from + column < seen_end {
                let weight = f32::exp(scores[at] * layout.scale - log_sum);
                value = dp[at];
                if drops {
                    value *= layout.drop.of_weight(weight_row as u32, (from + column) as u32, time as u32);
                }
                value = weight * (value - dot);
            }
            ds[my_row * weight_stride + column] = W::cast_from(value);
        }
        sync_cube();
        // dQ += dS K
        P::Of::<T, W, N>::accumulate(&mut sum, &ds, &keys, tile);
        sync_cube();
    }
    P::Of::<T, W, N>::write(&sum, &factors, &mut scores, dqkv, queries_at, width, time - first, tile);
}

/// The gradients of a tile of keys and of its values: sweeps over the queries that saw them, one
/// query head after another.
#[cube(launch_unchecked, address_type = "dynamic")]
fn keys_backward<T: Float, W: Float, N: Size, P: ProductsFamily>(
    qkv: &[Vector<T, N>],
    dy: &[Vector<T, N>],
    log_sums: &[f32],
    dots: &[f32],
    dqkv: &mut [Vector<T, N>],
    layout: Layout,
    #[comptime] drops: bool,
    #[comptime] tile: Tile,
    #[define(T, W)] _types: [ElemType; 2],
) {
    let (rows, columns, vectors, parts) = comptime!((tile.rows, tile.columns, tile.vectors, tile.parts()));
    let (stride, score_stride, weight_stride) = comptime!((tile.stride(), tile.score_stride(), tile.weight_stride()));
    let mut keys = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(rows * stride), 32usize);
    let mut values = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(rows * stride), 32usize);
    let mut queries = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(columns * stride), 32usize);
    let mut gradients = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(columns * stride), 32usize);
    // In all four, rows are keys and columns are queries.
    let mut scores = Shared::<[f32]>::new_aligned_slice(comptime!(rows * score_stride), 32usize);
    let mut dp = Shared::<[f32]>::new_aligned_slice(comptime!(rows * score_stride), 32usize);
    let mut weights = Shared::<[W]>::new_aligned_slice(comptime!(rows * weight_stride), 32usize);
    let mut ds = Shared::<[W]>::new_aligned_slice(comptime!(rows * weight_stride), 32usize);
    let mut sums_of_queries = Shared::<[f32]>::new_slice(columns);
    let mut dots_of_queries = Shared::<[f32]>::new_slice(columns);
    let mut factors = Shared::<[f32]>::new_slice(rows);

    let time = layout.time;
    let first = CUBE_POS_X as usize * rows;
    let (kv_head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let served = layout.n_head / layout.n_kv_head;
    let (width, out_width) = (layout.all_heads() * vectors, layout.n_head * vectors);
    let start = row * time * width;
    let keys_at = start + (layout.n_head + kv_head) * vectors + first * width;
    let values_at = keys_at + layout.n_kv_head * vectors;

    let my_row = UNIT_POS as usize / parts;
    let part = UNIT_POS as usize % parts;
    let position = first + my_row;
    load::<T, N>(qkv, keys_at, width, time - first, &mut keys, rows, tile);
    load::<T, N>(qkv, values_at, width, time - first, &mut values, rows, tile);
    let mut sum_of_keys = <P::Of<T, W, N> as Products<T, W, N>>::zeros(tile);
    let mut sum_of_values = <P::Of<T, W, N> as Products<T, W, N>>::zeros(tile);

    for i in 0..served {
        let head = kv_head * served + i;
        let weight_rows = (row * layout.n_head + head) * time;
        // Queries before the tile's first key saw none of its keys.
        for block in first / columns..time.div_ceil(columns) {
            let from = block * columns;
            let queries_at = start + from * width + head * vectors;
            let gradients_at = (row * time + from) * out_width + head * vectors;
            load::<T, N>(qkv, queries_at, width, time - from, &mut queries, columns, tile);
            load::<T, N>(dy, gradients_at, out_width, time - from, &mut gradients, columns, tile);
            let query = UNIT_POS as usize;
            if query < columns && from + query < time {
                sums_of_queries[query] = log_sums[weight_rows + from + query];
                dots_of_queries[query] = dots[weight_rows + from + query];
            }
            sync_cube();
            // Sᵀ and dPᵀ.
            P::Of::<T, W, N>::scores(&keys, &queries, &mut scores, tile);
            P::Of::<T, W, N>::scores(&values, &gradients, &mut dp, tile);
            sync_cube();
            // Pᵀ and dSᵀ.
            #[unroll]
            for i in 0..comptime!(tile.own()) {
                let column = own_column(i, my_row, part, tile);
                let at = my_row * score_stride + column;
                let query = from + column;
                let mut weight = 0.0f32;
                let mut value = 0.0f32;
                if query >= position && query < time {
                    weight = f32::exp(scores[at] * layout.scale - sums_of_queries[column]);
                    let mut factor = 1.0f32;
                    if drops {
                        factor = layout.drop.of_weight((weight_rows + query) as u32, position as u32, time as u32);
                    }
                    value = weight * (dp[at] * factor - dots_of_queries[column]);
                    weight *= factor;
                }
                weights[my_row * weight_stride + column] = W::cast_from(weight);
                ds[my_row * weight_stride + column] = W::cast_from(value);
            }
            sync_cube();
            // dV += Pᵀ dY and dK += dSᵀ Q
            P::Of::<T, W, N>::accumulate(&mut sum_of_values, &weights, &gradients, tile);
            P::Of::<T, W, N>::accumulate(&mut sum_of_keys, &ds, &queries, tile);
            sync_cube();
        }
    }
    if part == 0 {
        factors[my_row] = layout.scale;
    }
    sync_cube();
    P::Of::<T, W, N>::write(&sum_of_keys, &factors, &mut scores, dqkv, keys_at, width, time - first, tile);
    sync_cube();
    if part == 0 {
        factors[my_row] = 1.0f32;
    }
    sync_cube();
    P::Of::<T, W, N>::write(&sum_of_values, &factors, &mut scores, dqkv, values_at, width, time - first, tile);
}

/// The gradient of `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`, given the forward's
/// output `y` and log-sum-exps, with the tiles multiplied by `engine`.
pub(super) fn backward(
    engine: Engine,
    attention: &CausalAttention,
    kept: [CubeTensor; 3],
    dy: CubeTensor,
) -> CubeTensor {
    let [qkv, y, log_sums] = kept;
    let [qkv, y, dy] = [qkv, y, dy].map(contiguous);
    let shape = Shape::new(&qkv, attention.heads, engine.widest(), attention.dropout);
    let (vector, n_head, dqkv) = (shape.vector_size, shape.heads.n_head, unfilled_like(&qkv));
    let dots = unfilled(&y, [shape.batch * n_head, shape.time], DType::F32);
    let (rows, (_, together)) = (shape.batch * shape.time * n_head, row_units(shape.vectors()));
    if rows > 0 {
        let grid = Grid::cubes(&[&y], rows.div_ceil(together), ROW_UNITS);
        // SAFETY: the kernel checks every index against `rows`.
        unsafe {
            launch!(row_dots, grid, vector, [&y, &dy, &dots], rows, n_head, shape.time, shape.vectors(), elem(y.dtype));
        }
    }
    let tensors = [&qkv, &dy, &log_sums, &dots, &dqkv];
    #[cfg(feature = "cuda")]
    if engine == Engine::TensorCores && warpgroups::supports(&qkv, shape.heads.head_size) {
        warpgroups::backward(tensors, shape);
        return dqkv;
    }
    match engine {
        Engine::Units => launch::<Units>(engine, tensors, shape),
        Engine::TensorCores => launch::<TensorCores>(engine, tensors, shape),
    }
    dqkv
}

fn launch<P: ProductsFamily>(engine: Engine, [qkv, dy, log_sums, dots, dqkv]: [&CubeTensor; 5], shape: Shape) {
    let (vector, drops, Heads { n_head, n_kv_head, head_size }) =
        (shape.vector_size, shape.dropout.is_some(), shape.heads);
    let types = [qkv.dtype, engine.weights(qkv.dtype)].map(elem);
    let tile = engine.tile_on(&qkv.client, QUERIES, head_size, qkv.dtype);
    for (grid, layout) in shape.launches(qkv, tile.rows, tile.units, n_head) {
        // SAFETY: the kernel reads and writes within tensors of the sizes in `shape`.
        unsafe {
            launch!(queries_backward::<P>, grid, vector, [qkv, dy, log_sums, dots, dqkv], layout, drops, tile, types);
        }
    }
    let tile = engine.tile_on(&qkv.client, KEYS, head_size, qkv.dtype);
    for (grid, layout) in shape.launches(qkv, tile.rows, tile.units, n_kv_head) {
        // SAFETY: as above.
        unsafe {
            launch!(keys_backward::<P>, grid, vector, [qkv, dy, log_sums, dots, dqkv], layout, drops, tile, types);
        }
    }
}
