//! The gradients: one kernel owns queries and sweeps over the keys that they saw, the other owns
//! keys and values and sweeps over the queries that saw them. dS are the gradients of the scores.

use super::super::gpu_layout::{Layout, Shape};
use super::tile::*;
use crate::gpu::ptx;
use crate::gpu::warpgroup::{
    GROUP, ROWS, VECTOR_BYTES, WORDS, copy_rows, from_sequence, is_upper, own_column, own_row, rows_below, to_sequence,
};
use crate::{Heads, gpu::prelude::*};

/// Warpgroups of a cube; the fastest number measured.
const GROUPS: usize = 1;

/// The gradient of a tile of queries: sweeps over the keys that they saw.
#[cube(launch_unchecked, address_type = "dynamic")]
fn queries_backward<T: Float, N: Size>(
    qkv: &[Vector<T, N>],
    dy: &[Vector<T, N>],
    log_sums: &[f32],
    dots: &[f32],
    dqkv: &mut [Vector<u32, Const<WORDS>>],
    layout: Layout,
    #[comptime] form: Form,
    #[define(T)] _type: ElemType,
) {
    let (rows, units) = comptime!((form.rows(), form.units()));
    let held = Shared::<[Vector<T, N>]>::new_aligned_slice(
        comptime!((2 * form.groups + 2 * STAGES) * TILE / VECTOR_BYTES),
        1024usize,
    );
    let queries = ptx::shared_address(&held);
    let gradients = queries + comptime!((form.groups * TILE) as u32);
    let tiles = gradients + comptime!((form.groups * TILE) as u32);

    let time = layout.time;
    // The last queries saw the most keys, so they start first.
    let first = (time.div_ceil(rows) - 1 - CUBE_POS_X as usize) * rows;
    let (head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let (width, out_width) = (layout.all_heads() * VECTORS, layout.n_head * VECTORS);
    let start = row * time * width;
    let queries_at = start + first * width + head * VECTORS;
    let keys_at = start + layout.keys_for(head) * VECTORS;
    let values_at = keys_at + layout.n_kv_head * VECTORS;
    let gradients_at = (row * time + first) * out_width + head * VECTORS;

    let group = UNIT_POS as usize / GROUP;
    let my_first = first + group * ROWS;
    let position = my_first + own_row();
    let weight_row = (row * layout.n_head + head) * time + position;
    let scale = layout.scale * std::f32::consts::LOG2_E;
    let mut log_sum = (LOWEST.runtime(), LOWEST.runtime());
    let mut dot = (0.0f32.runtime(), 0.0f32.runtime());
    if position < time {
        log_sum.0 = -log_sums[weight_row] * std::f32::consts::LOG2_E;
        dot.0 = dots[weight_row];
    }
    if position + 8 < time {
        log_sum.1 = -log_sums[weight_row + 8] * std::f32::consts::LOG2_E;
        dot.1 = dots[weight_row + 8];
    }
    let mut sums = Array::<f32>::new(SUMS);
    let mut ds = Array::<f32>::new(SCORES);
    #[unroll]
    for i in 0..SUMS {
        sums[i] = 0.0;
    }

    let blocks = usize::min(first + rows, time).div_ceil(BLOCK);
    copy_rows::<T, N>(qkv, queries_at, width, time - first, queries, rows, units);
    copy_rows::<T, N>(dy, gradients_at, out_width, time - first, gradients, rows, units);
    for turn in 0..blocks + AHEAD {
        ptx::wait_for_copies(comptime!(AHEAD - 1));
        // All have finished the previous turn, so the next tiles may overwrite its buffers.
        sync_cube();
        if turn < blocks {
            let (from, to) = (turn * BLOCK, tiles + (turn % STAGES * comptime!(2 * TILE)) as u32);
            copy_rows::<T, N>(qkv, keys_at + from * width, width, time - from, to, BLOCK, units);
            copy_rows::<T, N>(qkv, values_at + from * width, width, time - from, to + TILE as u32, BLOCK, units);
        }
        ptx::end_copies();

        let block = turn - AHEAD;
        let from = block * BLOCK;
        let keys = tiles + (block % STAGES * comptime!(2 * TILE)) as u32;
        if turn >= AHEAD && from < my_first + ROWS {
            let own = (group * TILE) as u32;
            // S = Q Kᵀ and dP = dY Vᵀ
            let scores = ptx::multiply(described(queries + own), described(keys), comptime!(form.scores()));
            let dp = ptx::multiply(described(gradients + own), described(keys + TILE as u32), comptime!(form.scores()));
            #[unroll]
            for i in 0..SCORES {
                let upper = comptime!(is_upper(i));
                let weight = ptx::exp2(fma(*scores.index(i), scale, if upper { log_sum.0 } else { log_sum.1 }));
                let mut value = *dp.index(i);
                if comptime!(form.drops) {
                    let dropped = (weight_row + comptime!(rows_below(i))) as u32;
                    value *= layout.drop.of_weight(dropped, (from + own_column(i)) as u32, time as u32);
                }
                ds[i] = weight * (value - if upper { dot.0 } else { dot.1 });
            }
            if from + BLOCK > my_first {
                #[unroll]
                for i in 0..SCORES {
                    let seen = from + own_column(i) <= position + comptime!(rows_below(i));
                    ds[i] = select(seen, ds[i], 0.0);
                }
            }
            // dQ += dS K
            let after = ptx::multiply_registers(
                &to_sequence(&sums, SUMS),
                &factor(&ds, form.half),
                described(keys),
                comptime!(form.weighted()),
            );
            from_sequence(&mut sums, &after, SUMS);
        }
    }
    let valid = usize::max(time, my_first) - my_first;
    let out_at = queries_at + group * ROWS * width;
    write(&sums, layout.scale, layout.scale, dqkv, out_at, width, valid, form.half);
}

/// Two adjacent queries' data for [`keys_backward`]: what is added to their scores, and their dots.
#[cube]
fn of_queries(log_sums: &[f32], dots: &[f32], first: usize, valid: usize) -> Vector<f32, Const<4>> {
    let mut both = Vector::<f32, Const<4>>::zeroed();
    #[unroll]
    for i in 0..2usize {
        let mut log_sum = LOWEST.runtime();
        let mut dot = 0.0f32.runtime();
        if i < valid {
            log_sum = -log_sums[first + i] * std::f32::consts::LOG2_E;
            dot = dots[first + i];
        }
        both.insert(i, log_sum);
        both.insert(comptime!(2 + i), dot);
    }
    both
}

/// The gradients of a tile of keys and of its values: sweeps over the queries that saw them, one
/// query head after another. Rows are keys here, and columns are queries.
#[cube(launch_unchecked, address_type = "dynamic")]
fn keys_backward<T: Float, N: Size>(
    qkv: &[Vector<T, N>],
    dy: &[Vector<T, N>],
    log_sums: &[f32],
    dots: &[f32],
    dqkv: &mut [Vector<u32, Const<WORDS>>],
    layout: Layout,
    #[comptime] form: Form,
    #[define(T)] _type: ElemType,
) {
    let (rows, units) = comptime!((form.rows(), form.units()));
    let held = Shared::<[Vector<T, N>]>::new_aligned_slice(
        comptime!((2 * form.groups + 2 * STAGES) * TILE / VECTOR_BYTES),
        1024usize,
    );
    let mut pairs = Shared::<[Vector<f32, Const<4>>]>::new_aligned_slice(comptime!(STAGES * BLOCK / 2), 16usize);
    let keys = ptx::shared_address(&held);
    let values = keys + comptime!((form.groups * TILE) as u32);
    let tiles = values + comptime!((form.groups * TILE) as u32);

    let time = layout.time;
    let first = CUBE_POS_X as usize * rows;
    let (kv_head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let served = layout.n_head / layout.n_kv_head;
    let (width, out_width) = (layout.all_heads() * VECTORS, layout.n_head * VECTORS);
    let start = row * time * width;
    let keys_at = start + (layout.n_head + kv_head) * VECTORS + first * width;
    let values_at = keys_at + layout.n_kv_head * VECTORS;

    let group = UNIT_POS as usize / GROUP;
    let my_first = first + group * ROWS;
    let position = my_first + own_row();
    let scale = layout.scale * std::f32::consts::LOG2_E;
    let mut sums_of_keys = Array::<f32>::new(SUMS);
    let mut sums_of_values = Array::<f32>::new(SUMS);
    let mut weights = Array::<f32>::new(SCORES);
    let mut ds = Array::<f32>::new(SCORES);
    #[unroll]
    for i in 0..SUMS {
        sums_of_keys[i] = 0.0;
        sums_of_values[i] = 0.0;
    }

    // Queries before the tile's first key saw none of its keys.
    let first_block = first / BLOCK;
    let blocks = time.div_ceil(BLOCK) - first_block;
    let turns = served * blocks;
    copy_rows::<T, N>(qkv, keys_at, width, time - first, keys, rows, units);
    copy_rows::<T, N>(qkv, values_at, width, time - first, values, rows, units);
    for turn in 0..turns + AHEAD {
        ptx::wait_for_copies(comptime!(AHEAD - 1));
        // All have finished the previous turn, so the next tiles may overwrite its buffers.
        sync_cube();
        if turn < turns {
            let (head, from) = (kv_head * served + turn / blocks, (first_block + turn % blocks) * BLOCK);
            let to = tiles + (turn % STAGES * comptime!(2 * TILE)) as u32;
            let queries_at = start + from * width + head * VECTORS;
            let gradients_at = (row * time + from) * out_width + head * VECTORS;
            copy_rows::<T, N>(qkv, queries_at, width, time - from, to, BLOCK, units);
            copy_rows::<T, N>(dy, gradients_at, out_width, time - from, to + TILE as u32, BLOCK, units);
            let pair = UNIT_POS as usize;
            if pair < comptime!(BLOCK / 2) {
                let query = from + 2 * pair;
                let at = (row * layout.n_head + head) * time + query;
                pairs[turn % STAGES * comptime!(BLOCK / 2) + pair] =
                    of_queries(log_sums, dots, at, usize::max(time, query) - query);
            }
        }
        ptx::end_copies();

        let tile = turn - AHEAD;
        let (head, from) = (kv_head * served + tile / blocks, (first_block + tile % blocks) * BLOCK);
        let queries = tiles + (tile % STAGES * comptime!(2 * TILE)) as u32;
        if turn >= AHEAD && from + BLOCK > my_first {
            let own = (group * TILE) as u32;
            // Sᵀ = K Qᵀ and dPᵀ = V dYᵀ
            let scores = ptx::multiply(described(keys + own), described(queries), comptime!(form.scores()));
            let dp = ptx::multiply(described(values + own), described(queries + TILE as u32), comptime!(form.scores()));
            let pair_at = tile % STAGES * comptime!(BLOCK / 2) + UNIT_POS as usize % 4;
            #[unroll]
            for i in 0..SCORES {
                let pair = pairs[pair_at + comptime!(i / 4 * 4)];
                let weight = ptx::exp2(fma(*scores.index(i), scale, pair.extract(comptime!(i % 2))));
                weights[i] = weight;
                ds[i] = *dp.index(i);
                if comptime!(form.drops) {
                    let weight_row = (row * layout.n_head + head) * time + from + own_column(i);
                    let key = position + comptime!(rows_below(i));
                    let factor = layout.drop.of_weight(weight_row as u32, key as u32, time as u32);
                    weights[i] = weight * factor;
                    ds[i] = *dp.index(i) * factor;
                }
                ds[i] = weight * (ds[i] - pair.extract(comptime!(2 + i % 2)));
            }
            if from < my_first + ROWS {
                #[unroll]
                for i in 0..SCORES {
                    let seen = from + own_column(i) >= position + comptime!(rows_below(i));
                    weights[i] = select(seen, weights[i], 0.0);
                    ds[i] = select(seen, ds[i], 0.0);
                }
            }
            // dV += Pᵀ dY and dK += dSᵀ Q
            let of_values = ptx::multiply_registers(
                &to_sequence(&sums_of_values, SUMS),
                &factor(&weights, form.half),
                described(queries + TILE as u32),
                comptime!(form.weighted()),
            );
            from_sequence(&mut sums_of_values, &of_values, SUMS);
            let of_keys = ptx::multiply_registers(
                &to_sequence(&sums_of_keys, SUMS),
                &factor(&ds, form.half),
                described(queries),
                comptime!(form.weighted()),
            );
            from_sequence(&mut sums_of_keys, &of_keys, SUMS);
        }
    }
    let valid = usize::max(time, my_first) - my_first;
    let own = group * ROWS * width;
    write(&sums_of_keys, layout.scale, layout.scale, dqkv, keys_at + own, width, valid, form.half);
    write(&sums_of_values, 1.0f32.runtime(), 1.0f32.runtime(), dqkv, values_at + own, width, valid, form.half);
}

/// As [`backward`](super::super::gpu_backward::backward), given the rows' dots.
pub fn backward([qkv, dy, log_sums, dots, dqkv]: [&CubeTensor; 5], shape: Shape) {
    let form = Form::new(qkv, shape.dropout.is_some(), GROUPS);
    let (rows, units, Heads { n_head, n_kv_head, .. }) = (form.rows(), form.units(), shape.heads);
    for (grid, layout) in shape.launches(qkv, rows, units, n_head) {
        // SAFETY: the kernel reads and writes within tensors of the sizes in `shape`.
        unsafe {
            launch!(queries_backward, grid, VECTOR_SIZE, [qkv, dy, log_sums, dots, dqkv], layout, form, elem(qkv.dtype))
        };
    }
    for (grid, layout) in shape.launches(qkv, rows, units, n_kv_head) {
        // SAFETY: as above.
        unsafe {
            launch!(keys_backward, grid, VECTOR_SIZE, [qkv, dy, log_sums, dots, dqkv], layout, form, elem(qkv.dtype))
        };
    }
}
