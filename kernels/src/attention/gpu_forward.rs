//! Causal attention on a GPU, after FlashAttention ([Dao et al.
//! 2022](https://arxiv.org/abs/2205.14135), algorithm 1): a cube owns some queries of a head and
//! sweeps over the keys up to them, with an online softmax (the largest score and the sum so far).
//! No score leaves the cube; the log-sum-exp of each row is kept for the backward.

#[cfg(feature = "cuda")]
use super::warpgroups;
use super::{CausalAttention, gpu_layout::Layout, gpu_layout::Shape};
use crate::gpu::tile::{Footprint, Products, ProductsFamily, Tile, Units, load, own_column};
use crate::{gpu::engine::Engine, gpu::prelude::*, gpu::tensor_cores::TensorCores};

/// How far a score may exceed the sums' reference score before the sums are rescaled: a factor of
/// 3,000, which float16 can represent. Rescaling the sums at every new largest score would cost too
/// much.
const SLACK: f32 = 8.0;

/// Shared memory of [`forward`]: queries; keys, then values in their place.
pub const FORWARD: Footprint = Footprint { vectors: 1, scores: 1, weights: 1, of_columns: 0 };

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward<T: Float, W: Float, N: Size, P: ProductsFamily>(
    qkv: &[Vector<T, N>],
    y: &mut [Vector<T, N>],
    log_sums: &mut [f32],
    layout: Layout,
    #[comptime] drops: bool,
    #[comptime] tile: Tile,
    #[define(T, W)] _types: [ElemType; 2],
) {
    let (rows, columns, vectors, parts) = comptime!((tile.rows, tile.columns, tile.vectors, tile.parts()));
    let (stride, score_stride, weight_stride) = comptime!((tile.stride(), tile.score_stride(), tile.weight_stride()));
    let mut queries = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(rows * stride), 32usize);
    let mut swept = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(columns * stride), 32usize);
    let mut scores = Shared::<[f32]>::new_aligned_slice(comptime!(rows * score_stride), 32usize);
    let mut weights = Shared::<[W]>::new_aligned_slice(comptime!(rows * weight_stride), 32usize);
    let mut factors = Shared::<[f32]>::new_slice(rows);
    let mut rescales = Shared::<[u32]>::new_slice(1usize);

    let time = layout.time;
    // The last queries see the most keys, so they start first.
    let first = (time.div_ceil(rows) - 1 - CUBE_POS_X as usize) * rows;
    let (head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let width = layout.all_heads() * vectors;
    let start = (layout.before + row * time) * width;
    let queries_at = start + head * vectors;
    let keys_at = start + layout.keys_for(head) * vectors;
    let values_at = keys_at + layout.n_kv_head * vectors;

    let my_row = UNIT_POS as usize / parts;
    let part = UNIT_POS as usize % parts;
    let position = first + my_row;
    let weight_row = ((row * layout.n_head + head) * time + position) as u32;
    let mut largest = 0.0f32;
    let mut total = 0.0f32;
    let mut sum = <P::Of<T, W, N> as Products<T, W, N>>::zeros(tile);
    load::<T, N>(qkv, queries_at + first * width, width, time - first, &mut queries, rows, tile);

    let end = usize::min(first + rows, time);
    let blocks = end.div_ceil(columns);
    for block in 0..blocks {
        let from = block * columns;
        load::<T, N>(qkv, keys_at + from * width, width, time - from, &mut swept, columns, tile);
        if UNIT_POS == 0 {
            rescales[0] = 0u32;
        }
        sync_cube();
        P::Of::<T, W, N>::scores(&queries, &swept, &mut scores, tile);
        sync_cube();

        // The values replace the keys in shared memory while the scores become weights.
        load::<T, N>(qkv, values_at + from * width, width, time - from, &mut swept, columns, tile);
        let mut seen = columns.runtime();
        if position + 1 < from + columns {
            seen = 0usize;
            if position + 1 > from {
                seen = position + 1 - from;
            }
        }
        // The largest score of the row in this block: first of the unit's own columns, then of all.
        let mut own = Array::<f32>::new(comptime!(tile.own()));
        let mut block_largest = f32::min_value();
        #[unroll]
        for i in 0..comptime!(tile.own()) {
            let column = own_column(i, my_row, part, tile);
            own[i] = f32::min_value();
            if column < seen {
                own[i] = scores[my_row * score_stride + column] * layout.scale;
            }
            block_largest = f32::max(block_largest, own[i]);
        }
        if comptime!(tile.planes) {
            block_largest = f32::max(block_largest, plane_shuffle_xor(block_largest, 1u32));
        } else {
            for column in 0..seen {
                block_largest = f32::max(block_largest, scores[my_row * score_stride + column] * layout.scale);
            }
        }
        // Factor that rescales the sums so far to a new reference score.
        let mut factor = 1.0f32;
        if block == 0 {
            largest = block_largest;
        } else if block_largest > largest + SLACK {
            factor = f32::exp(largest - block_largest);
            largest = block_largest;
            total *= factor;
            rescales[0] = 1u32;
        }
        if part == 0 {
            factors[my_row] = factor;
        }
        #[unroll]
        for i in 0..comptime!(tile.own()) {
            let column = own_column(i, my_row, part, tile);
            // Masked scores are the smallest number, so their weight is 0.
            let mut weight = f32::exp(own[i] - largest);
            total += weight;
            if drops {
                weight *= layout.drop.of_weight(weight_row, (from + column) as u32, time as u32);
            }
            weights[my_row * weight_stride + column] = W::cast_from(weight);
        }
        sync_cube();
        if rescales[0] != 0 {
            P::Of::<T, W, N>::scale_rows(&mut sum, &factors, &mut scores, tile);
        }
        P::Of::<T, W, N>::accumulate(&mut sum, &weights, &swept, tile);
        sync_cube();
    }

    // The sum of a row's exponentials, from the partial sums of its units.
    scores[my_row * score_stride + part] = total;
    sync_cube();
    if part == 0 {
        let mut total = 0.0f32;
        #[unroll]
        for i in 0..parts {
            total += scores[my_row * score_stride + i];
        }
        factors[my_row] = 1.0 / total;
        if position < time {
            log_sums[weight_row as usize] = largest + f32::ln(total);
        }
    }
    sync_cube();
    let out_width = layout.n_head * vectors;
    let out_at = (layout.before + row * time + first) * out_width + head * vectors;
    P::Of::<T, W, N>::write(&sum, &factors, &mut scores, y, out_at, out_width, time - first, tile);
}

/// Attention of `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]`: the output `[batch, time,
/// n_head head_size]`, and the log-sum-exp of each row of scores, `[batch * n_head, time]` in
/// float32. The tiles are multiplied by `engine`.
pub(super) fn attend(engine: Engine, attention: &CausalAttention, qkv: CubeTensor) -> (CubeTensor, CubeTensor) {
    let qkv = contiguous(qkv);
    let shape = Shape::new(&qkv, attention.heads, engine.widest(), attention.dropout);
    let y = unfilled(&qkv, [shape.batch, shape.time, attention.heads.query_width()], qkv.dtype);
    let log_sums = attend_into(engine, &qkv, &y, shape);
    (y, log_sums)
}

/// As [`attend`] for the rows of `shape`, into their part of `y`. Returns the log-sum-exps.
pub fn attend_into(engine: Engine, qkv: &CubeTensor, y: &CubeTensor, shape: Shape) -> CubeTensor {
    let log_sums = unfilled(qkv, [shape.batch * shape.heads.n_head, shape.time], DType::F32);
    #[cfg(feature = "cuda")]
    if engine == Engine::TensorCores && warpgroups::supports(qkv, shape.heads.head_size) {
        warpgroups::attend_into(qkv, y, &log_sums, shape);
        return log_sums;
    }
    match engine {
        Engine::Units => launch::<Units>(engine, [qkv, y, &log_sums], shape),
        Engine::TensorCores => launch::<TensorCores>(engine, [qkv, y, &log_sums], shape),
    }
    log_sums
}

fn launch<P: ProductsFamily>(engine: Engine, [qkv, y, log_sums]: [&CubeTensor; 3], shape: Shape) {
    let types = [qkv.dtype, engine.weights(qkv.dtype)].map(elem);
    let tile = engine.tile_on(&qkv.client, FORWARD, shape.heads.head_size, qkv.dtype);
    let (vector, drops) = (shape.vector_size, shape.dropout.is_some());
    for (grid, layout) in shape.launches(qkv, tile.rows, tile.units, shape.heads.n_head) {
        // SAFETY: the kernel reads and writes within tensors of the sizes in `shape`.
        unsafe { launch!(forward::<P>, grid, vector, [qkv, y, log_sums], layout, drops, tile, types) };
    }
}
