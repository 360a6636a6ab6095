//! The output: a cube owns queries of a head and sweeps over the keys that they see.

use super::super::gpu_layout::{Layout, Shape};
use super::tile::*;
use crate::gpu::prelude::*;
use crate::gpu::ptx;
use crate::gpu::warpgroup::{
    GROUP, ROWS, VECTOR_BYTES, WORDS, copy_rows, from_sequence, is_upper, own_column, own_row, rows_below, to_sequence,
};

/// Warpgroups of a cube; the fastest number measured.
const GROUPS: usize = 2;

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward<T: Float, N: Size>(
    qkv: &[Vector<T, N>],
    y: &mut [Vector<u32, Const<WORDS>>],
    log_sums: &mut [f32],
    layout: Layout,
    #[comptime] form: Form,
    #[define(T)] _type: ElemType,
) {
    let (rows, units) = comptime!((form.rows(), form.units()));
    let held = Shared::<[Vector<T, N>]>::new_aligned_slice(
        comptime!((form.groups + 2 * STAGES) * TILE / VECTOR_BYTES),
        1024usize,
    );
    let queries = ptx::shared_address(&held);
    let tiles = queries + comptime!((form.groups * TILE) as u32);

    let time = layout.time;
    // The last queries see the most keys, so they start first.
    let first = (time.div_ceil(rows) - 1 - CUBE_POS_X as usize) * rows;
    let (head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let width = layout.all_heads() * VECTORS;
    let start = (layout.before + row * time) * width;
    let keys_at = start + layout.keys_for(head) * VECTORS;
    let values_at = keys_at + layout.n_kv_head * VECTORS;

    let group = UNIT_POS as usize / GROUP;
    let my_first = first + group * ROWS;
    let position = my_first + own_row();
    let weight_row = (row * layout.n_head + head) * time + position;
    // Exponentials are computed as powers of two.
    let scale = layout.scale * std::f32::consts::LOG2_E;
    let mut largest = (LOWEST.runtime(), LOWEST.runtime());
    let mut total = (0.0f32.runtime(), 0.0f32.runtime());
    let mut sums = Array::<f32>::new(SUMS);
    let mut weights = Array::<f32>::new(SCORES);
    #[unroll]
    for i in 0..SUMS {
        sums[i] = 0.0;
    }

    let blocks = usize::min(first + rows, time).div_ceil(BLOCK);
    let queries_at = start + first * width + head * VECTORS;
    copy_rows::<T, N>(qkv, queries_at, width, time - first, queries, rows, units);
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
            let scores =
                ptx::multiply(described(queries + (group * TILE) as u32), described(keys), comptime!(form.scores()));
            from_sequence(&mut weights, &scores, SCORES);
            if from + BLOCK > my_first {
                #[unroll]
                for i in 0..SCORES {
                    let seen = from + own_column(i) <= position + comptime!(rows_below(i));
                    weights[i] = select(seen, weights[i], LOWEST);
                }
            }
            let mut top = (LOWEST.runtime(), LOWEST.runtime());
            #[unroll]
            for i in 0..SCORES {
                if comptime!(is_upper(i)) {
                    top.0 = f32::max(top.0, weights[i]);
                } else {
                    top.1 = f32::max(top.1, weights[i]);
                }
            }
            let new = (
                f32::max(largest.0, largest_of_four(top.0) * scale),
                f32::max(largest.1, largest_of_four(top.1) * scale),
            );
            let factors = (ptx::exp2(largest.0 - new.0), ptx::exp2(largest.1 - new.1));
            largest.0 = new.0;
            largest.1 = new.1;
            total.0 *= factors.0;
            total.1 *= factors.1;
            #[unroll]
            for i in 0..SUMS {
                sums[i] *= if comptime!(is_upper(i)) { factors.0 } else { factors.1 };
            }
            #[unroll]
            for i in 0..SCORES {
                let mut weight = ptx::exp2(fma(weights[i], scale, -if comptime!(is_upper(i)) { new.0 } else { new.1 }));
                if comptime!(is_upper(i)) {
                    total.0 += weight;
                } else {
                    total.1 += weight;
                }
                if comptime!(form.drops) {
                    let dropped = (weight_row + comptime!(rows_below(i))) as u32;
                    weight *= layout.drop.of_weight(dropped, (from + own_column(i)) as u32, time as u32);
                }
                weights[i] = weight;
            }
            let after = ptx::multiply_registers(
                &to_sequence(&sums, SUMS),
                &factor(&weights, form.half),
                described(keys + TILE as u32),
                comptime!(form.weighted()),
            );
            from_sequence(&mut sums, &after, SUMS);
        }
    }

    total.0 = sum_of_four(total.0);
    total.1 = sum_of_four(total.1);
    if UNIT_POS % 4 == 0 {
        if position < time {
            log_sums[weight_row] = largest.0 * std::f32::consts::LN_2 + f32::ln(total.0);
        }
        if position + 8 < time {
            log_sums[weight_row + 8] = largest.1 * std::f32::consts::LN_2 + f32::ln(total.1);
        }
    }
    let out_width = layout.n_head * VECTORS;
    let out_at = (layout.before + row * time + my_first) * out_width + head * VECTORS;
    let valid = usize::max(time, my_first) - my_first;
    write(&sums, 1.0 / total.0, 1.0 / total.1, y, out_at, out_width, valid, form.half);
}

/// As [`attend_into`](super::super::gpu_forward::attend_into).
pub fn attend_into(qkv: &CubeTensor, y: &CubeTensor, log_sums: &CubeTensor, shape: Shape) {
    let form = Form::new(qkv, shape.dropout.is_some(), GROUPS);
    for (grid, layout) in shape.launches(qkv, form.rows(), form.units(), shape.heads.n_head) {
        // SAFETY: the kernel reads and writes within tensors of the sizes in `shape`.
        unsafe { launch!(forward, grid, VECTOR_SIZE, [qkv, y, log_sums], layout, form, elem(qkv.dtype)) };
    }
}
