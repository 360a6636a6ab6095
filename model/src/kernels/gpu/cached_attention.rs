//! Attention to the key-value cache on a GPU: what decoding is. Every new position of every head has a cube of its own, several
//! where rows are long and few, which reads keys and values by slot, once, and writes the new ones to theirs. Rows that begin
//! here are a prefill: the tiles of `attention.rs` read each key for many queries at once.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::{CachedRows, Heads};
use super::attention::{Shape, attend_into};
use super::engine::Engine;
use super::tensor::{address_type, contiguous, elem, unfilled};

/// Units of a cube.
const UNITS: usize = 128;

/// Numbers that a unit reads at once, at most.
const MOST_AT_ONCE: usize = 4;

/// Keys that a cube scores before it looks at their values: at most one for each unit.
const BLOCK: usize = 64;

/// Most units that share a key; more would leave each with less than a vector of a usual head.
const MOST_LANES: usize = 16;

/// New positions that one launch takes: a grid holds no more than 65,535 cubes in a direction.
const MOST_POSITIONS: usize = 1 << 15;

/// From so many new positions on, a row that begins here is worth tiles.
const MANY: usize = 8;

/// Cubes for each multiprocessor that are enough to keep it busy, and how many of those there are where the driver does not say.
const CUBES_EACH: usize = 4;
const MULTIPROCESSORS: usize = 32;

/// How units share the keys of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Share {
    /// Vectors in the width of a head.
    vectors: usize,
    /// Units that share a key.
    lanes: usize,
    /// Whether the keys of a position are shared by several cubes, whose sums another kernel adds.
    split: bool,
}

impl Share {
    /// Keys that are read at once.
    const fn groups(self) -> usize {
        UNITS / self.lanes
    }

    /// Vectors that a unit holds of a key.
    const fn each(self) -> usize {
        self.vectors.div_ceil(self.lanes)
    }
}

/// Where things stand, for both kernels.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Places {
    n_head: usize,
    n_kv_head: usize,
    /// The slot of the first new position.
    first_new: usize,
    /// The first new position of this launch, and of the run it belongs to.
    first: usize,
    /// See `first`.
    run: usize,
    /// Cubes that share the keys of a position, and how many each takes.
    splits: usize,
    /// See `splits`.
    piece: usize,
    scale: f32,
}

/// One new position of one head against a piece of what its row holds. `table` holds two numbers for each new position: where in
/// `table` the slots of its row begin, and how many of them it sees.
#[cube(launch_unchecked, address_type = "dynamic")]
fn attend_position<T: Float, I: Int, N: Size>(
    qkv: &Tensor<Vector<T, N>>,
    keys: &mut Tensor<Vector<T, N>>,
    values: &mut Tensor<Vector<T, N>>,
    table: &Tensor<I>,
    y: &mut Tensor<Vector<T, N>>,
    sums: &mut Tensor<Vector<f32, N>>,
    totals: &mut Tensor<f32>,
    places: Places,
    #[comptime] share: Share,
    #[define(T, I)] _types: [ElemType; 2],
) {
    let (vectors, lanes, groups, each) = comptime!((share.vectors, share.lanes, share.groups(), share.each()));
    let turns = comptime!(BLOCK.div_ceil(groups));
    let mut products = Shared::<[f32]>::new_slice(comptime!(BLOCK * lanes));
    let mut scores = Shared::<[f32]>::new_slice(BLOCK);
    let mut gathered = Shared::<[Vector<f32, N>]>::new_slice(comptime!(groups * vectors));
    let mut gathered_totals = Shared::<[f32]>::new_slice(groups);

    let unit = UNIT_POS as usize;
    let (group, lane) = (unit / lanes, unit % lanes);
    let position = places.first + CUBE_POS_X as usize;
    let head = CUBE_POS_Y as usize;
    let served = places.n_head / places.n_kv_head;
    let kv_head = head / served;
    let split = CUBE_POS_Z as usize;
    let kv_width = places.n_kv_head * vectors;
    let width = places.n_head * vectors + 2 * kv_width;
    let new_keys = (places.n_head + kv_head) * vectors;

    let slots = usize::cast_from(table[2 * position]);
    let seen = usize::cast_from(table[2 * position + 1]);
    let begin = usize::min(split * places.piece, seen);
    let end = usize::min(begin + places.piece, seen);

    let mut query = Array::<Vector<f32, N>>::new(each);
    let mut sum = Array::<Vector<f32, N>>::new(each);
    #[unroll]
    for i in 0..each {
        let vector = i * lanes + lane;
        sum[i] = Vector::zeroed();
        query[i] = Vector::zeroed();
        if vector < vectors {
            query[i] = Vector::<f32, N>::cast_from(qkv[position * width + head * vectors + vector])
                * Vector::new(places.scale);
            // The cubes of this pass find the new keys and values in `qkv`; later ones in the cache.
            if split == 0 && head % served == 0 && group == 0 {
                let from = position * width + new_keys + vector;
                let to = (places.first_new + position) * kv_width + kv_head * vectors + vector;
                keys[to] = qkv[from];
                values[to] = qkv[from + kv_width];
            }
        }
    }

    let mut largest = f32::min_value();
    let mut total = 0.0f32;
    for block in 0..(end - begin).div_ceil(BLOCK) {
        let from = begin + block * BLOCK;
        let here = usize::min(end - from, BLOCK);
        #[unroll]
        for turn in 0..turns {
            let key = turn * groups + group;
            if key < here && group < groups {
                let slot = usize::cast_from(table[slots + from + key]);
                let mut dots = Vector::<f32, N>::zeroed();
                #[unroll]
                for i in 0..each {
                    let vector = i * lanes + lane;
                    if comptime!(vectors % lanes == 0) || vector < vectors {
                        let value = if slot >= places.first_new {
                            qkv[(slot - places.first_new) * width + new_keys + vector]
                        } else {
                            keys[slot * kv_width + kv_head * vectors + vector]
                        };
                        dots = fma(query[i], Vector::<f32, N>::cast_from(value), dots);
                    }
                }
                let mut dot = 0.0f32;
                #[unroll]
                for l in 0..N::value() {
                    dot += dots.extract(l);
                }
                products[key * lanes + lane] = dot;
            }
        }
        sync_cube();
        if unit < here {
            let mut score = 0.0f32;
            #[unroll]
            for l in 0..lanes {
                score += products[unit * lanes + l];
            }
            scores[unit] = score;
        }
        sync_cube();
        let mut block_largest = largest;
        for key in 0..here {
            block_largest = f32::max(block_largest, scores[key]);
        }
        let factor = f32::exp(largest - block_largest);
        largest = block_largest;
        total *= factor;
        #[unroll]
        for i in 0..each {
            sum[i] = sum[i] * Vector::new(factor);
        }
        #[unroll]
        for turn in 0..turns {
            let key = turn * groups + group;
            if key < here && group < groups {
                let slot = usize::cast_from(table[slots + from + key]);
                let weight = f32::exp(scores[key] - largest);
                total += weight;
                #[unroll]
                for i in 0..each {
                    let vector = i * lanes + lane;
                    if comptime!(vectors % lanes == 0) || vector < vectors {
                        let value = if slot >= places.first_new {
                            qkv[(slot - places.first_new) * width + new_keys + kv_width + vector]
                        } else {
                            values[slot * kv_width + kv_head * vectors + vector]
                        };
                        sum[i] = fma(Vector::new(weight), Vector::<f32, N>::cast_from(value), sum[i]);
                    }
                }
            }
        }
    }

    if group < groups {
        if lane == 0 {
            gathered_totals[group] = total;
        }
        #[unroll]
        for i in 0..each {
            let vector = i * lanes + lane;
            if vector < vectors {
                gathered[group * vectors + vector] = sum[i];
            }
        }
    }
    sync_cube();
    let mut total = 0.0f32;
    #[unroll]
    for g in 0..groups {
        total += gathered_totals[g];
    }
    let row = ((position - places.run) * places.n_head + head) * places.splits + split;
    #[unroll]
    for i in 0..comptime!(vectors.div_ceil(UNITS)) {
        let vector = i * UNITS + unit;
        if vector < vectors {
            let mut sum = Vector::<f32, N>::zeroed();
            for g in 0..groups {
                sum += gathered[g * vectors + vector];
            }
            if comptime!(share.split) {
                sums[row * vectors + vector] = sum;
            } else {
                y[(position * places.n_head + head) * vectors + vector] = Vector::cast_from(sum / Vector::new(total));
            }
        }
    }
    if comptime!(share.split) && unit == 0 {
        totals[2 * row] = largest;
        totals[2 * row + 1] = total;
    }
}

/// Adds up what the cubes of a position found; `start` is the run's first vector in `y`, `count` how many it has.
#[cube(launch_unchecked, address_type = "dynamic")]
fn add_pieces<T: Float, N: Size>(
    sums: &Tensor<Vector<f32, N>>,
    totals: &Tensor<f32>,
    y: &mut Tensor<Vector<T, N>>,
    count: usize,
    start: usize,
    splits: usize,
    #[comptime] vectors: usize,
    #[define(T)] _type: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let first = at / vectors * splits;
        let vector = at % vectors;
        let mut largest = f32::min_value();
        for split in 0..splits {
            largest = f32::max(largest, totals[2 * (first + split)]);
        }
        let mut sum = Vector::<f32, N>::zeroed();
        let mut total = 0.0f32;
        for split in 0..splits {
            let row = first + split;
            let factor = f32::exp(totals[2 * row] - largest);
            total += factor * totals[2 * row + 1];
            sum = fma(Vector::new(factor), sums[row * vectors + vector], sum);
        }
        y[start + at] = Vector::cast_from(sum / Vector::new(total));
    }
}

/// Writes the new keys and values of some positions to their slots.
#[cube(launch_unchecked, address_type = "dynamic")]
fn store_positions<T: Float, N: Size>(
    qkv: &Tensor<Vector<T, N>>,
    keys: &mut Tensor<Vector<T, N>>,
    values: &mut Tensor<Vector<T, N>>,
    count: usize,
    first: usize,
    first_new: usize,
    query_width: usize,
    kv_width: usize,
    #[define(T)] _type: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let position = first + at / kv_width;
        let vector = at % kv_width;
        let from = position * (query_width + 2 * kv_width) + query_width + vector;
        let to = (first_new + position) * kv_width + vector;
        keys[to] = qkv[from];
        values[to] = qkv[from + kv_width];
    }
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
fn runs(rows: &CachedRows) -> Vec<Run> {
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

/// Attention of the new positions `qkv` `[1, new positions, (n_head + 2 n_kv_head) head_size]` to a layer's cache, `keys` and `values`
/// `[slots, n_kv_head head_size]`, which keep theirs; `table` is [`CachedRows::table`]. Returns what they see,
/// `[1, new positions, n_head head_size]`, and the cache.
pub fn attend(
    qkv: CubeTensor,
    keys: CubeTensor,
    values: CubeTensor,
    table: CubeTensor,
    heads: Heads,
    rows: &CachedRows,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let qkv = contiguous(qkv);
    let [keys, values] = [keys, values].map(writable);
    let shape = Shape::new(&qkv, heads, MOST_AT_ONCE);
    let y = unfilled(&qkv, [1, shape.time, heads.query_width()], qkv.dtype);
    for run in runs(rows) {
        let pass = Pass {
            qkv: &qkv,
            keys: &keys,
            values: &values,
            table: &table,
            y: &y,
            first_new: rows.first_new,
            shape: &shape,
        };
        match run.fresh {
            Some(new) => {
                pass.store(run);
                let engine = Engine::of(&qkv, heads);
                let rows = Shape { batch: run.positions / new, time: new, ..Shape::new(&qkv, heads, engine.widest()) };
                attend_into(engine, &qkv, &y, rows, run.first, None);
            }
            None => pass.attend(run),
        }
    }
    (y, keys, values)
}

/// The tensor to write into: itself where nothing else holds it.
fn writable(tensor: CubeTensor) -> CubeTensor {
    let tensor = contiguous(tensor);
    if tensor.handle.can_mut() { tensor } else { tensor.copy() }
}

/// One layer's part in a pass.
struct Pass<'a> {
    qkv: &'a CubeTensor,
    keys: &'a CubeTensor,
    values: &'a CubeTensor,
    table: &'a CubeTensor,
    y: &'a CubeTensor,
    first_new: usize,
    shape: &'a Shape,
}

impl Pass<'_> {
    fn store(&self, run: Run) {
        let heads = self.shape.heads;
        let [query_width, kv_width] = [heads.n_head, heads.n_kv_head].map(|n| n * self.shape.vectors());
        let count = run.positions * kv_width;
        let units = CubeDim::new_1d(UNITS as u32);
        // SAFETY: the positions are those of `qkv`, and their slots inside the cache.
        unsafe {
            store_positions::launch_unchecked(
                &self.qkv.client,
                cubecl::calculate_cube_count_elemwise(&self.qkv.client, count, units),
                units,
                address_type(&[self.qkv, self.keys]),
                self.shape.line,
                self.qkv.clone().into_tensor_arg(),
                self.keys.clone().into_tensor_arg(),
                self.values.clone().into_tensor_arg(),
                count,
                run.first,
                self.first_new,
                query_width,
                kv_width,
                elem(self.qkv.dtype),
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
        let share = Share { vectors, lanes: vectors.min(MOST_LANES), split: splits > 1 };
        // Without a split nothing is written here, but a kernel's arguments must be something.
        let pieces = if share.split { run.positions * n_head * splits } else { 1 };
        let sums = unfilled(self.qkv, [pieces, head_size], DType::F32);
        let totals = unfilled(self.qkv, [pieces, 2], DType::F32);
        for first in (run.first..run.first + run.positions).step_by(MOST_POSITIONS) {
            let positions = MOST_POSITIONS.min(run.first + run.positions - first);
            let scale = 1.0 / (head_size as f32).sqrt();
            // SAFETY: the positions are those of `qkv` and `y`, the slots in `table` inside the cache.
            unsafe {
                attend_position::launch_unchecked(
                    client,
                    CubeCount::Static(positions as u32, n_head as u32, splits as u32),
                    CubeDim::new_1d(UNITS as u32),
                    address_type(&[self.qkv, self.keys, &sums]),
                    self.shape.line,
                    self.qkv.clone().into_tensor_arg(),
                    self.keys.clone().into_tensor_arg(),
                    self.values.clone().into_tensor_arg(),
                    self.table.clone().into_tensor_arg(),
                    self.y.clone().into_tensor_arg(),
                    sums.clone().into_tensor_arg(),
                    totals.clone().into_tensor_arg(),
                    PlacesLaunch::new(n_head, n_kv_head, self.first_new, first, run.first, splits, piece, scale),
                    share,
                    [elem(self.qkv.dtype), i32::elem_type_native()],
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
        let units = CubeDim::new_1d(UNITS as u32);
        // SAFETY: one unit for each vector of `y`.
        unsafe {
            add_pieces::launch_unchecked(
                &self.qkv.client,
                cubecl::calculate_cube_count_elemwise(&self.qkv.client, count, units),
                units,
                address_type(&[self.y, &sums]),
                self.shape.line,
                sums.clone().into_tensor_arg(),
                totals.into_tensor_arg(),
                self.y.clone().into_tensor_arg(),
                count,
                run.first * width,
                splits,
                vectors,
                elem(self.qkv.dtype),
            );
        }
    }
}
