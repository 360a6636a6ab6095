//! Attention to the key-value cache on a GPU: what decoding is. Every new position of every head
//! has a cube of its own, several where rows are long and few, which reads keys and values by slot,
//! once, and writes the new ones to theirs. Rows that begin here are a prefill: the tiles of
//! attention to a whole window read each key for many queries at once, and the cache is filled
//! slice by slice.

use burn::tensor::{Int, Tensor};

use super::gpu_kernels::{BLOCK, PartLaunch, Share, UNITS, add_pieces, attend_position};
use super::rows::Places;
use crate::attention::{gpu_forward::attend_into, gpu_layout::Shape};
use crate::{Heads, attention::gpu::engine_for, gpu::prelude::*, gpu::tile::head_vector_size, heads::parts};

/// Numbers that a unit reads at once, at most.
const WIDEST: usize = 4;

/// New positions that one launch takes: a grid holds no more than 65,535 cubes in a direction.
const MOST_POSITIONS: usize = 1 << 15;

/// From so many new positions on, a row that begins here is worth tiles.
const MANY: usize = 8;

/// Cubes for each multiprocessor that are enough to keep it busy, and how many of those there are
/// where the driver does not say.
const CUBES_EACH: usize = 4;
const MULTIPROCESSORS: usize = 32;

/// Bytes of shared memory that attention with heads of `head_size` takes.
pub fn shared_memory(head_size: usize) -> usize {
    let vector_size = head_vector_size(head_size, WIDEST);
    Share::new(head_size / vector_size, false).bytes(vector_size)
}

/// Rows side by side that a kernel takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The first of their new positions, and how many there are.
    first: usize,
    /// See `first`.
    positions: usize,
    /// The new positions of each row where all begin here and have as many: tiles serve them.
    fresh: Option<usize>,
    /// Positions of the longest row.
    longest: usize,
}

impl Run {
    /// Keys that a cube takes, in whole blocks: all of a position's, or less where a cube for each
    /// position of each of `n_head` heads would leave multiprocessors idle.
    fn keys_of_a_cube(&self, client: &Client, n_head: usize) -> usize {
        let multiprocessors = client.properties().hardware.num_streaming_multiprocessors;
        let wanted = CUBES_EACH * multiprocessors.map_or(MULTIPROCESSORS, |n| n as usize) / (self.positions * n_head);
        let blocks = self.longest.div_ceil(BLOCK);
        self.longest.div_ceil(wanted.clamp(1, blocks)).next_multiple_of(BLOCK)
    }
}

/// The rows in as few runs as there can be.
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

/// The cache with the keys and values of a run's positions in their slots, the first of all new
/// ones in slot `first_new`.
fn with_new(cache: [Tensor<3>; 2], qkv: &CubeTensor, heads: Heads, run: &Run, first_new: usize) -> [Tensor<3>; 2] {
    let of_run = from_cube::<3>(qkv.clone()).narrow(1, run.first, run.positions);
    let [_, new_keys, new_values] = parts(of_run, heads).map(|x| x.squeeze_dim::<3>(0).swap_dims(0, 1));
    let slot = first_new + run.first;
    let slots = [0..heads.n_kv_head, slot..slot + run.positions, 0..heads.head_size];
    let [keys, values] = cache;
    [(keys, new_keys), (values, new_values)].map(|(old, new)| old.slice_assign(slots.clone(), new))
}

/// Attention of a run's positions to what their rows have in the cache, and to themselves, whose
/// keys and values are put there.
fn attend_by_slot([qkv, keys, values, table, y]: [&CubeTensor; 5], shape: &Shape, run: Run) {
    let (vector, Heads { n_head, n_kv_head, head_size }) = (shape.vector_size, shape.heads);
    let slots = keys.meta.shape()[1];
    let piece = run.keys_of_a_cube(&qkv.client, n_head);
    let splits = run.longest.div_ceil(piece);
    let share = Share::new(shape.vectors(), splits > 1);
    // Without a split nothing is written here, but a kernel's arguments must be something.
    let pieces = if share.split { run.positions * n_head * splits } else { 1 };
    let [sums, totals] = [head_size, 2].map(|width| unfilled(qkv, [pieces, width], DType::F32));
    let (types, scale) = ([qkv.dtype, DType::I32].map(elem), shape.heads.scale());
    for first in (run.first..run.first + run.positions).step_by(MOST_POSITIONS) {
        let positions = MOST_POSITIONS.min(run.first + run.positions - first);
        let cubes = CubeCount::Static(positions as u32, n_head as u32, splits as u32);
        let grid = Grid::new(&[qkv, keys, &sums], cubes, CubeDim::new_1d(UNITS as u32));
        let part = PartLaunch::new(n_head, n_kv_head, slots, first, run.first, splits, piece, scale);
        // SAFETY: the positions are those of `qkv` and `y`, the slots in `table` inside the cache.
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
