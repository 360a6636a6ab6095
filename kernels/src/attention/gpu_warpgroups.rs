//! Causal attention and its gradient by Hopper's tensor cores, for heads of 64. The algorithm is
//! that of [`gpu_forward`](super::gpu_forward) and [`gpu_backward`](super::gpu_backward); here
//! scores never leave the registers: each unit has those of two rows, which it shares with three
//! others, and as weights they are at once what the next product takes ([Shah et al.
//! 2024](https://arxiv.org/abs/2407.08608), section 3). Meanwhile the next tiles are copied into
//! shared memory.

use super::gpu_forward::{Layout, Shape};
use crate::gpu::prelude::*;
use crate::gpu::ptx::{self, Half, Product};
use crate::gpu::tensor_cores::PLANE;
use crate::gpu::warpgroup::{
    GROUP, NUMBERS, ROW, ROWS, SHUFFLED, STEP, VECTOR, WORDS, copy_rows, descriptor, is_hopper, put_back, rounded,
    step, taken,
};

/// Positions of a tile that is swept over.
const BLOCK: usize = 64;
/// Bytes of the rows of a warpgroup, or of a tile.
const TILE: usize = ROWS * ROW;
/// Pairs of tiles that are on their way.
const AHEAD: usize = 2;
/// Pairs of tiles that shared memory holds: those, and one in use.
const STAGES: usize = AHEAD + 1;
/// Numbers in a unit of a tile of scores, and of a sum over the width of a head.
const SCORES: usize = BLOCK / 2;
/// See [`SCORES`].
const SUMS: usize = NUMBERS / 2;
/// Vectors in a head.
const VECTORS: usize = SHUFFLED;
/// Numbers of a half type that a unit reads at once.
const LINE: usize = VECTOR / 2;
/// Vectors of the result that a unit writes in a row.
const WRITTEN: usize = NUMBERS / 2 / WORDS / 4;
/// What stands for no score, and for a row that does not exist.
const LOWEST: f32 = -1e30;

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// The type of the inputs.
    half: Half,
    /// Whether weights are dropped.
    drops: bool,
    /// Warpgroups of a cube.
    groups: usize,
}

impl Form {
    /// Units of a cube.
    const fn units(self) -> usize {
        self.groups * GROUP
    }

    /// Rows of a cube.
    const fn high(self) -> usize {
        self.groups * ROWS
    }

    /// Rows by the rows of a tile, over the width of a head.
    const fn scores(self) -> Product {
        let steps = [step(false); 2];
        Product { columns: BLOCK, half: self.half, across: [false; 2], steps, count: NUMBERS / STEP }
    }

    /// Weights by a tile, over its rows.
    const fn weighted(self) -> Product {
        let steps = [0, step(true)];
        Product { columns: NUMBERS, half: self.half, across: [false, true], steps, count: BLOCK / STEP }
    }
}

/// Describes to the tensor cores what lies at `at`.
#[cube]
fn described(at: u32) -> u64 {
    comptime!(descriptor(VECTOR)) + (at / VECTOR as u32) as u64
}

/// The row of a warpgroup's 64 whose sums a unit has first; it has those of the row eight below, too.
#[cube]
fn own_row() -> usize {
    let (plane, lane) = (UNIT_POS as usize / PLANE, UNIT_POS as usize % PLANE);
    plane % (GROUP / PLANE) * STEP + lane / 4
}

/// The column of a unit's sum number `i` in a tile.
#[cube]
fn own_column(#[comptime] i: usize) -> usize {
    comptime!(i / 4 * 8 + i % 2) + UNIT_POS as usize % 4 * 2
}

/// The largest of what four units have.
#[cube]
fn largest_of_four(x: f32) -> f32 {
    let x = f32::max(x, plane_shuffle_xor(x, 1u32));
    f32::max(x, plane_shuffle_xor(x, 2u32))
}

/// The sum of what four units have.
#[cube]
fn sum_of_four(x: f32) -> f32 {
    let x = x + plane_shuffle_xor(x, 1u32);
    x + plane_shuffle_xor(x, 2u32)
}

/// Numbers as a factor in registers.
#[cube]
fn factor(numbers: &Array<f32>, #[comptime] half: Half) -> Sequence<u32> {
    let mut pairs = Sequence::<u32>::new();
    #[unroll]
    for i in 0..comptime!(SCORES / 2) {
        pairs.push(ptx::packed(numbers[comptime!(2 * i)], numbers[comptime!(2 * i + 1)], half));
    }
    pairs
}

/// Writes two rows of sums, times what is given for each, where they are below `valid`.
#[cube]
fn write(
    sums: &Array<f32>,
    upper: f32,
    lower: f32,
    out: &mut [Vector<u32, Const<WORDS>>],
    first: usize,
    stride: usize,
    valid: usize,
    #[comptime] half: Half,
) {
    let lane = UNIT_POS % comptime!(PLANE as u32);
    let mut scaled = Sequence::<f32>::new();
    #[unroll]
    for i in 0..SUMS {
        let factor = if comptime!(i / 2 % 2 == 0) { upper } else { lower };
        scaled.push(sums[i] * factor);
    }
    #[unroll]
    for which in 0..2usize {
        let row = own_row() + which * 8;
        #[unroll]
        for vector in 0..WRITTEN {
            let words = rounded(&scaled, lane, vector, which, half);
            if row < valid {
                out[first + row * stride + vector * 4 + (lane % 4) as usize] = words;
            }
        }
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn forward<T: Float, N: Size>(
    qkv: &[Vector<T, N>],
    y: &mut [Vector<u32, Const<WORDS>>],
    log_sums: &mut [f32],
    layout: Layout,
    #[comptime] form: Form,
    #[define(T)] _type: ElemType,
) {
    let (high, units) = comptime!((form.high(), form.units()));
    let held =
        Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!((form.groups + 2 * STAGES) * TILE / VECTOR), 1024usize);
    let queries = ptx::shared_address(&held);
    let tiles = queries + comptime!((form.groups * TILE) as u32);

    let time = layout.time;
    // The last queries see the most keys: they begin first.
    let first = (time.div_ceil(high) - 1 - CUBE_POS_X as usize) * high;
    let (head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let width = (layout.n_head + 2 * layout.n_kv_head) * VECTORS;
    let start = (layout.before + row * time) * width;
    let keys_at = start + (layout.n_head + head / (layout.n_head / layout.n_kv_head)) * VECTORS;
    let values_at = keys_at + layout.n_kv_head * VECTORS;

    let group = UNIT_POS as usize / GROUP;
    let my_first = first + group * ROWS;
    let position = my_first + own_row();
    let weight_row = (row * layout.n_head + head) * time + position;
    // Exponentials are powers of two here.
    let scale = layout.scale * std::f32::consts::LOG2_E;
    let mut largest = (LOWEST.runtime(), LOWEST.runtime());
    let mut total = (0.0f32.runtime(), 0.0f32.runtime());
    let mut sums = Array::<f32>::new(SUMS);
    let mut weights = Array::<f32>::new(SCORES);
    #[unroll]
    for i in 0..SUMS {
        sums[i] = 0.0;
    }

    let blocks = usize::min(first + high, time).div_ceil(BLOCK);
    let queries_at = start + first * width + head * VECTORS;
    copy_rows::<T, N>(qkv, queries_at, width, time - first, queries, high, units);
    for turn in 0..blocks + AHEAD {
        ptx::wait_for_copies(comptime!(AHEAD - 1));
        // All have ended the turn before, and with it what was where the next tiles go.
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
            put_back(&mut weights, &scores, SCORES);
            if from + BLOCK > my_first {
                #[unroll]
                for i in 0..SCORES {
                    let seen = from + own_column(i) <= position + comptime!(i / 2 % 2 * 8);
                    weights[i] = select(seen, weights[i], LOWEST);
                }
            }
            let mut top = (LOWEST.runtime(), LOWEST.runtime());
            #[unroll]
            for i in 0..SCORES {
                if comptime!(i / 2 % 2 == 0) {
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
                sums[i] *= if comptime!(i / 2 % 2 == 0) { factors.0 } else { factors.1 };
            }
            #[unroll]
            for i in 0..SCORES {
                let mut weight =
                    ptx::exp2(fma(weights[i], scale, -if comptime!(i / 2 % 2 == 0) { new.0 } else { new.1 }));
                if comptime!(i / 2 % 2 == 0) {
                    total.0 += weight;
                } else {
                    total.1 += weight;
                }
                if comptime!(form.drops) {
                    let dropped = (weight_row + comptime!(i / 2 % 2 * 8)) as u32;
                    weight *= layout.drop.of_weight(dropped, (from + own_column(i)) as u32, time as u32);
                }
                weights[i] = weight;
            }
            let after = ptx::multiply_registers(
                &taken(&sums, SUMS),
                &factor(&weights, form.half),
                described(keys + TILE as u32),
                comptime!(form.weighted()),
            );
            put_back(&mut sums, &after, SUMS);
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

/// The gradient of a tile of queries, which sweeps over the keys that they saw.
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
    let (high, units) = comptime!((form.high(), form.units()));
    let held = Shared::<[Vector<T, N>]>::new_aligned_slice(
        comptime!((2 * form.groups + 2 * STAGES) * TILE / VECTOR),
        1024usize,
    );
    let queries = ptx::shared_address(&held);
    let gradients = queries + comptime!((form.groups * TILE) as u32);
    let tiles = gradients + comptime!((form.groups * TILE) as u32);

    let time = layout.time;
    // The last queries saw the most keys: they begin first.
    let first = (time.div_ceil(high) - 1 - CUBE_POS_X as usize) * high;
    let (head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let (width, out_width) = ((layout.n_head + 2 * layout.n_kv_head) * VECTORS, layout.n_head * VECTORS);
    let start = row * time * width;
    let queries_at = start + first * width + head * VECTORS;
    let keys_at = start + (layout.n_head + head / (layout.n_head / layout.n_kv_head)) * VECTORS;
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
    let mut slopes = Array::<f32>::new(SCORES);
    #[unroll]
    for i in 0..SUMS {
        sums[i] = 0.0;
    }

    let blocks = usize::min(first + high, time).div_ceil(BLOCK);
    copy_rows::<T, N>(qkv, queries_at, width, time - first, queries, high, units);
    copy_rows::<T, N>(dy, gradients_at, out_width, time - first, gradients, high, units);
    for turn in 0..blocks + AHEAD {
        ptx::wait_for_copies(comptime!(AHEAD - 1));
        // All have ended the turn before, and with it what was where the next tiles go.
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
            let scores = ptx::multiply(described(queries + own), described(keys), comptime!(form.scores()));
            let weighted =
                ptx::multiply(described(gradients + own), described(keys + TILE as u32), comptime!(form.scores()));
            #[unroll]
            for i in 0..SCORES {
                let upper = comptime!(i / 2 % 2 == 0);
                let weight = ptx::exp2(fma(*scores.index(i), scale, if upper { log_sum.0 } else { log_sum.1 }));
                let mut slope = *weighted.index(i);
                if comptime!(form.drops) {
                    let dropped = (weight_row + comptime!(i / 2 % 2 * 8)) as u32;
                    slope *= layout.drop.of_weight(dropped, (from + own_column(i)) as u32, time as u32);
                }
                slopes[i] = weight * (slope - if upper { dot.0 } else { dot.1 });
            }
            if from + BLOCK > my_first {
                #[unroll]
                for i in 0..SCORES {
                    let seen = from + own_column(i) <= position + comptime!(i / 2 % 2 * 8);
                    slopes[i] = select(seen, slopes[i], 0.0);
                }
            }
            let after = ptx::multiply_registers(
                &taken(&sums, SUMS),
                &factor(&slopes, form.half),
                described(keys),
                comptime!(form.weighted()),
            );
            put_back(&mut sums, &after, SUMS);
        }
    }
    let valid = usize::max(time, my_first) - my_first;
    let out_at = queries_at + group * ROWS * width;
    write(&sums, layout.scale, layout.scale, dqkv, out_at, width, valid, form.half);
}

/// What [`keys_backward`] needs to know of two queries next to each other: what is added to their
/// scores, and their dots.
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

/// The gradients of a tile of keys and of its values, which sweeps over the queries that saw them,
/// one head that they serve after another. Keys lie along the rows here, queries along the columns.
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
    let (high, units) = comptime!((form.high(), form.units()));
    let held = Shared::<[Vector<T, N>]>::new_aligned_slice(
        comptime!((2 * form.groups + 2 * STAGES) * TILE / VECTOR),
        1024usize,
    );
    let mut pairs = Shared::<[Vector<f32, Const<4>>]>::new_aligned_slice(comptime!(STAGES * BLOCK / 2), 16usize);
    let keys = ptx::shared_address(&held);
    let values = keys + comptime!((form.groups * TILE) as u32);
    let tiles = values + comptime!((form.groups * TILE) as u32);

    let time = layout.time;
    let first = CUBE_POS_X as usize * high;
    let (kv_head, row) = (CUBE_POS_Y as usize, layout.first_row + CUBE_POS_Z as usize);
    let served = layout.n_head / layout.n_kv_head;
    let (width, out_width) = ((layout.n_head + 2 * layout.n_kv_head) * VECTORS, layout.n_head * VECTORS);
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
    let mut slopes = Array::<f32>::new(SCORES);
    #[unroll]
    for i in 0..SUMS {
        sums_of_keys[i] = 0.0;
        sums_of_values[i] = 0.0;
    }

    // No query before the first key saw any of them.
    let first_block = first / BLOCK;
    let blocks = time.div_ceil(BLOCK) - first_block;
    let turns = served * blocks;
    copy_rows::<T, N>(qkv, keys_at, width, time - first, keys, high, units);
    copy_rows::<T, N>(qkv, values_at, width, time - first, values, high, units);
    for turn in 0..turns + AHEAD {
        ptx::wait_for_copies(comptime!(AHEAD - 1));
        // All have ended the turn before, and with it what was where the next tiles go.
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
            let scores = ptx::multiply(described(keys + own), described(queries), comptime!(form.scores()));
            let weighted =
                ptx::multiply(described(values + own), described(queries + TILE as u32), comptime!(form.scores()));
            let pair_at = tile % STAGES * comptime!(BLOCK / 2) + UNIT_POS as usize % 4;
            #[unroll]
            for i in 0..SCORES {
                let pair = pairs[pair_at + comptime!(i / 4 * 4)];
                let weight = ptx::exp2(fma(*scores.index(i), scale, pair.extract(comptime!(i % 2))));
                weights[i] = weight;
                slopes[i] = *weighted.index(i);
                if comptime!(form.drops) {
                    let weight_row = (row * layout.n_head + head) * time + from + own_column(i);
                    let key = position + comptime!(i / 2 % 2 * 8);
                    let factor = layout.drop.of_weight(weight_row as u32, key as u32, time as u32);
                    weights[i] = weight * factor;
                    slopes[i] = *weighted.index(i) * factor;
                }
                slopes[i] = weight * (slopes[i] - pair.extract(comptime!(2 + i % 2)));
            }
            if from < my_first + ROWS {
                #[unroll]
                for i in 0..SCORES {
                    let seen = from + own_column(i) >= position + comptime!(i / 2 % 2 * 8);
                    weights[i] = select(seen, weights[i], 0.0);
                    slopes[i] = select(seen, slopes[i], 0.0);
                }
            }
            let of_values = ptx::multiply_registers(
                &taken(&sums_of_values, SUMS),
                &factor(&weights, form.half),
                described(queries + TILE as u32),
                comptime!(form.weighted()),
            );
            put_back(&mut sums_of_values, &of_values, SUMS);
            let of_keys = ptx::multiply_registers(
                &taken(&sums_of_keys, SUMS),
                &factor(&slopes, form.half),
                described(queries),
                comptime!(form.weighted()),
            );
            put_back(&mut sums_of_keys, &of_keys, SUMS);
        }
    }
    let valid = usize::max(time, my_first) - my_first;
    let own = group * ROWS * width;
    write(&sums_of_keys, layout.scale, layout.scale, dqkv, keys_at + own, width, valid, form.half);
    write(&sums_of_values, 1.0f32.runtime(), 1.0f32.runtime(), dqkv, values_at + own, width, valid, form.half);
}

/// Warpgroups of a cube of each kernel, by what was fastest.
const FORWARD_GROUPS: usize = 2;
/// See [`FORWARD_GROUPS`].
const QUERIES_GROUPS: usize = 1;
/// See [`FORWARD_GROUPS`].
const KEYS_GROUPS: usize = 1;

/// Whether these kernels are for such inputs on such a device.
pub fn takes(qkv: &CubeTensor, head_size: usize) -> bool {
    is_hopper(&qkv.client) && [DType::F16, DType::BF16].contains(&qkv.dtype) && head_size == NUMBERS
}

fn form(qkv: &CubeTensor, shape: &Shape, groups: usize) -> Form {
    let half = if qkv.dtype == DType::F16 { Half::F16 } else { Half::BF16 };
    Form { half, drops: shape.dropout.is_some(), groups }
}

/// As [`attend_into`](super::gpu_forward::attend_into).
pub fn attend_into(qkv: &CubeTensor, y: &CubeTensor, log_sums: &CubeTensor, shape: Shape) {
    let form = form(qkv, &shape, FORWARD_GROUPS);
    for (grid, layout) in shape.launches(qkv, form.high(), form.units(), shape.heads.n_head) {
        // SAFETY: the kernel reads and writes within the tensors whose sizes `shape` states.
        unsafe { launch!(forward, grid, LINE, [qkv, y, log_sums], layout, form, elem(qkv.dtype)) };
    }
}

/// As [`backward`](super::gpu_backward::backward), the rows' dots being known.
pub fn backward([qkv, dy, log_sums, dots, dqkv]: [&CubeTensor; 5], shape: Shape) {
    let of_queries = form(qkv, &shape, QUERIES_GROUPS);
    for (grid, layout) in shape.launches(qkv, of_queries.high(), of_queries.units(), shape.heads.n_head) {
        // SAFETY: as above.
        unsafe {
            launch!(queries_backward, grid, LINE, [qkv, dy, log_sums, dots, dqkv], layout, of_queries, elem(qkv.dtype));
        }
    }
    let of_keys = form(qkv, &shape, KEYS_GROUPS);
    for (grid, layout) in shape.launches(qkv, of_keys.high(), of_keys.units(), shape.heads.n_kv_head) {
        // SAFETY: as above.
        unsafe {
            launch!(keys_backward, grid, LINE, [qkv, dy, log_sums, dots, dqkv], layout, of_keys, elem(qkv.dtype))
        };
    }
}
