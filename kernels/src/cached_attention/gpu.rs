//! Attention to the key-value cache on a GPU, for decoding. Every new position of every head has
//! one cube, or several if rows are long and few; it reads keys and values once, by slot, and
//! writes the new ones to their slots. Rows without cached positions are a prefill: the tiled
//! kernel of [`crate::causal_attention`] reads each key for many queries at once, and the cache is
//! filled by slice assignment.

use burn::tensor::{Int, Tensor};

use super::gpu_kernels::{BLOCK, PartLaunch, Share, UNITS, add_pieces, attend_position};
use super::rows::Places;
use crate::attention::{gpu_forward::attend_into, gpu_layout::Shape};
use crate::{Heads, attention::gpu::engine_for, gpu::prelude::*, gpu::tile::head_vector_size, heads::parts};

/// Largest vector width.
const WIDEST: usize = 4;

/// New positions per launch: a grid has at most 65,535 cubes in a dimension.
const MAX_POSITIONS: usize = 1 << 15;

/// Minimum number of new positions for which a prefill uses the tiled kernel; not measured against
/// others.
const MANY: usize = 8;

/// Cubes that keep a multiprocessor busy, and the assumed number of multiprocessors if the driver
/// does not report it.
const CUBES_EACH: usize = 4;
const MULTIPROCESSORS: usize = 32;

/// Bytes of shared memory for attention with heads of `head_size`.
pub fn shared_memory(head_size: usize) -> usize {
    let vector_size = head_vector_size(head_size, WIDEST);
    Share::new(head_size / vector_size, false).bytes(vector_size)
}

/// Adjacent rows that one kernel processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Their first new position.
    first: usize,
    /// Their new positions.
    positions: usize,
    /// New positions per row, if all rows are prefills of equal length: they use the tiled kernel.
    fresh: Option<usize>,
    /// Positions of the longest row.
    longest: usize,
}

impl Run {
    /// Keys per cube, in whole blocks: all keys of a position, or fewer if one cube for each
    /// position and head would leave multiprocessors idle.
    fn keys_of_a_cube(&self, client: &Client, n_head: usize) -> usize {
        let multiprocessors = client.properties().hardware.num_streaming_multiprocessors;
        let wanted = CUBES_EACH * multiprocessors.map_or(MULTIPROCESSORS, |n| n as usize) / (self.positions * n_head);
        let blocks = self.longest.div_ceil(BLOCK);
        self.longest.div_ceil(wanted.clamp(1, blocks)).next_multiple_of(BLOCK)
    }
}

/// Splits the rows into as few runs as possible.
fn runs(places: &Places) -> Vec<Run> {
    let rows = match *places {
        Places::Listed(ref rows) => rows,
        Places::InTable { rows, longest } => return vec![Run { first: 0, positions: rows, fresh: None, longest }],
    };
    let mut runs: Vec<Run> = Vec::new();
    let mut first = 0;
    for (slots, &new) in rows.slots.iter().zip(rows.new.iter()) {
        let fresh = (slots.len() == new && new >= MANY).then_some(new);
        let longest = slots.len();
        match runs.last_mut() {
            Some(run) if run.fresh == fresh => {
                run.positions += new;
                run.longest = run.longest.max(longest);
            }
            _ => runs.push(Run { first, positions: new, fresh, longest }),
        }
        first += new;
    }
    runs
}

/// As [`super::CachedAttention::attend`]; `table` is that of [`crate::CachedRows`].
pub fn attend(
    qkv: Tensor<3>,
    cache: [Tensor<3>; 2],
    table: Tensor<1, Int>,
    heads: Heads,
    places: &Places,
) -> (Tensor<3>, [Tensor<3>; 2]) {
    let (qkv, table, runs) = (contiguous(cube(qkv)), cube(table), runs(places));
    let [keys, values] = match places {
        Places::Listed(rows) => {
            let fresh = runs.iter().filter(|run| run.fresh.is_some());
            let cache = fresh.fold(cache, |cache, run| with_new(cache, &qkv, heads, run, rows.first_new));
            cache.map(|cache| writable(contiguous(cube(cache))))
        }
        Places::InTable { .. } => cache.map(cube),
    };
    let shape = Shape::new(&qkv, heads, WIDEST, None);
    let y = unfilled(&qkv, [1, shape.time, heads.query_width()], qkv.dtype);
    for run in runs {
        match run.fresh {
            Some(time) => {
                let (engine, batch) = (engine_for(&qkv, heads.head_size), run.positions / time);
                let shape = Shape::new(&qkv, heads, engine.widest(), None);
                attend_into(engine, &qkv, &y, Shape { batch, time, before: run.first, ..shape });
            }
            None => attend_by_slot([&qkv, &keys, &values, &table, &y], &shape, run),
        }
    }
    (from_cube(y), [keys, values].map(from_cube))
}

/// The cache with the keys and values of a run's positions written to their slots; slot `first_new`
/// belongs to the first of all new positions.
fn with_new(cache: [Tensor<3>; 2], qkv: &CubeTensor, heads: Heads, run: &Run, first_new: usize) -> [Tensor<3>; 2] {
    let of_run = from_cube::<3>(qkv.clone()).narrow(1, run.first, run.positions);
    let [_, new_keys, new_values] = parts(of_run, heads).map(|x| x.squeeze_dim::<3>(0).swap_dims(0, 1));
    let slot = first_new + run.first;
    let slots = [0..heads.n_kv_head, slot..slot + run.positions, 0..heads.head_size];
    let [keys, values] = cache;
    [(keys, new_keys), (values, new_values)].map(|(old, new)| old.slice_assign(slots.clone(), new))
}

/// Attention of a run's positions to their rows in the cache and to themselves; writes the new keys
/// and values to the cache.
fn attend_by_slot([qkv, keys, values, table, y]: [&CubeTensor; 5], shape: &Shape, run: Run) {
    let (vector, Heads { n_head, n_kv_head, head_size }) = (shape.vector_size, shape.heads);
    let slots = keys.meta.shape()[1];
    let keys_per_cube = run.keys_of_a_cube(&qkv.client, n_head);
    let splits = run.longest.div_ceil(keys_per_cube);
    let share = Share::new(shape.vectors(), splits > 1);
    // Unused without a split, but a kernel needs all its arguments.
    let pieces = if share.split { run.positions * n_head * splits } else { 1 };
    let [sums, totals] = [head_size, 2].map(|width| unfilled(qkv, [pieces, width], DType::F32));
    let (types, scale) = ([qkv.dtype, DType::I32].map(elem), shape.heads.scale());
    for first in (run.first..run.first + run.positions).step_by(MAX_POSITIONS) {
        let positions = MAX_POSITIONS.min(run.first + run.positions - first);
        let cubes = CubeCount::Static(positions as u32, n_head as u32, splits as u32);
        let grid = Grid::new(&[qkv, keys, &sums], cubes, CubeDim::new_1d(UNITS as u32));
        let part = PartLaunch::new(n_head, n_kv_head, slots, first, run.first, splits, keys_per_cube, scale);
        // SAFETY: the positions are those of `qkv` and `y`; the slots in `table` are inside the
        // cache, as `CachedAttention::attend` has checked.
        unsafe {
            launch!(attend_position, grid, vector, [qkv, keys, values, table, y, &sums, &totals], part, share, types);
        }
    }
    if share.split {
        let width = n_head * share.vectors;
        let (count, start) = (run.positions * width, run.first * width);
        let grid = Grid::cubes(&[y, &sums], count.div_ceil(UNITS), UNITS);
        // SAFETY: one unit for each vector of `y`.
        unsafe { launch!(add_pieces, grid, vector, [sums, totals, y], count, start, splits, share.vectors, types[0]) };
    }
}
