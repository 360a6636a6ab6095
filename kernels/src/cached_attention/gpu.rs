//! Attention to the key-value cache on a GPU: what decoding is. Every new position of every head
//! has a cube of its own, several where rows are long and few, which reads keys and values by slot,
//! once, and writes the new ones to theirs. Rows that begin here are a prefill: the tiles of
//! `attention.rs` read each key for many queries at once.

use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::gpu_kernels::{BLOCK, PartLaunch, Share, UNITS, add_pieces, attend_position, store_positions};
use super::rows::Places;
use crate::Heads;
use crate::attention::gpu_choice::engine_for;
use crate::attention::gpu_forward::{Shape, attend_into};
use crate::gpu::launch::{Grid, launch};
use crate::gpu::tensor::{contiguous, cube, elem, from_cube, unfilled, writable};
use crate::gpu::tile::line;

/// Numbers that a unit reads at once, at most.
const MOST_AT_ONCE: usize = 4;

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
    let at_once = line(head_size, MOST_AT_ONCE);
    Share::new(head_size / at_once, false).bytes(at_once)
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
pub fn on_tensors(
    qkv: Tensor<3>,
    keys: Tensor<3>,
    values: Tensor<3>,
    table: Tensor<1, Int>,
    heads: Heads,
    places: &Places,
) -> (Tensor<3>, Tensor<3>, Tensor<3>) {
    let (y, keys, values) = attend(cube(qkv), cube(keys), cube(values), cube(table), heads, places);
    (from_cube(y), from_cube(keys), from_cube(values))
}

/// Attention of the new positions `qkv` `[1, new positions, (n_head + 2 n_kv_head) head_size]` to a
/// layer's cache, `keys` and `values` `[n_kv_head, slots, head_size]`, which keep theirs; `table`
/// is that of [`crate::CachedRows`]. Returns what they see, `[1, new positions, n_head head_size]`,
/// and the cache.
fn attend(
    qkv: CubeTensor,
    keys: CubeTensor,
    values: CubeTensor,
    table: CubeTensor,
    heads: Heads,
    places: &Places,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let qkv = contiguous(qkv);
    let [keys, values] = match places {
        Places::Listed(_) => [keys, values].map(|cache| writable(contiguous(cache))),
        Places::InTable { .. } => [keys, values],
    };
    let shape = Shape::new(&qkv, heads, MOST_AT_ONCE);
    let y = unfilled(&qkv, [1, shape.time, heads.query_width()], qkv.dtype);
    for run in runs(places) {
        let pass = Pass { qkv: &qkv, keys: &keys, values: &values, table: &table, y: &y, shape: &shape };
        match run.fresh {
            Some(new) => {
                pass.store(run);
                let engine = engine_for(&qkv, heads.head_size);
                let rows = Shape { batch: run.positions / new, time: new, ..Shape::new(&qkv, heads, engine.widest()) };
                attend_into(engine, &qkv, &y, rows, run.first, None);
            }
            None => pass.attend(run),
        }
    }
    (y, keys, values)
}

/// One layer's part in a pass.
struct Pass<'a> {
    qkv: &'a CubeTensor,
    keys: &'a CubeTensor,
    values: &'a CubeTensor,
    table: &'a CubeTensor,
    y: &'a CubeTensor,
    shape: &'a Shape,
}

impl Pass<'_> {
    /// Slots of the cache.
    fn slots(&self) -> usize {
        self.keys.meta.shape()[1]
    }

    fn store(&self, run: Run) {
        let heads = self.shape.heads;
        let [query_width, kv_width] = [heads.n_head, heads.n_kv_head].map(|n| n * self.shape.vectors());
        let count = run.positions * kv_width;
        // SAFETY: the positions are those of `qkv`, and their slots inside the cache.
        unsafe {
            launch!(
                store_positions,
                Grid::cubes(&[self.qkv, self.keys], count.div_ceil(UNITS), UNITS),
                self.shape.line,
                (self.qkv, self.keys, self.values, self.table),
                count,
                run.first,
                self.slots(),
                [query_width, kv_width],
                self.shape.vectors(),
                [elem(self.qkv.dtype), i32::elem_type_native()]
            );
        }
    }

    fn attend(&self, run: Run) {
        let Heads { n_head, n_kv_head, head_size } = self.shape.heads;
        let (client, vectors) = (&self.qkv.client, self.shape.vectors());
        let multiprocessors = client.properties().hardware.num_streaming_multiprocessors;
        let wanted = CUBES_EACH * multiprocessors.map_or(MULTIPROCESSORS, |n| n as usize) / (run.positions * n_head);
        let piece = run.longest.div_ceil(wanted.clamp(1, run.longest.div_ceil(BLOCK))).next_multiple_of(BLOCK);
        let splits = run.longest.div_ceil(piece);
        let share = Share::new(vectors, splits > 1);
        // Without a split nothing is written here, but a kernel's arguments must be something.
        let pieces = if share.split { run.positions * n_head * splits } else { 1 };
        let sums = unfilled(self.qkv, [pieces, head_size], DType::F32);
        let totals = unfilled(self.qkv, [pieces, 2], DType::F32);
        for first in (run.first..run.first + run.positions).step_by(MOST_POSITIONS) {
            let positions = MOST_POSITIONS.min(run.first + run.positions - first);
            let scale = 1.0 / (head_size as f32).sqrt();
            let cubes = CubeCount::Static(positions as u32, n_head as u32, splits as u32);
            let grid = Grid::new(&[self.qkv, self.keys, &sums], cubes, CubeDim::new_1d(UNITS as u32));
            // SAFETY: the positions are those of `qkv` and `y`, the slots in `table` inside the
            // cache.
            unsafe {
                launch!(
                    attend_position,
                    grid,
                    self.shape.line,
                    (self.qkv, self.keys, self.values, self.table, self.y, sums, totals),
                    PartLaunch::new(n_head, n_kv_head, self.slots(), first, run.first, splits, piece, scale),
                    share,
                    [elem(self.qkv.dtype), i32::elem_type_native()]
                );
            }
        }
        if share.split {
            self.add(run, splits, sums, totals);
        }
    }

    fn add(&self, run: Run, splits: usize, sums: CubeTensor, totals: CubeTensor) {
        let vectors = self.shape.vectors();
        let width = self.shape.heads.n_head * vectors;
        let count = run.positions * width;
        // SAFETY: one unit for each vector of `y`.
        unsafe {
            launch!(
                add_pieces,
                Grid::cubes(&[self.y, &sums], count.div_ceil(UNITS), UNITS),
                self.shape.line,
                (sums, totals, self.y),
                count,
                run.first * width,
                splits,
                vectors,
                elem(self.qkv.dtype)
            );
        }
    }
}
