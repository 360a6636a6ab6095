//! The kernels of attention to the cache: one with a cube for each new position of each head (and
//! piece of its keys), and one that adds up several cubes' pieces.

use cubecl::prelude::*;

use crate::gpu::tile::sum_of_lanes;

/// Units of a cube.
pub const UNITS: usize = 128;

/// Keys that a cube scores before it reads their values: at most one per unit.
pub const BLOCK: usize = 64;

/// How units share the keys of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// Vectors in a head.
    pub vectors: usize,
    /// Units that share a key.
    pub lanes: usize,
    /// Whether several cubes share the keys of a position; another kernel then adds their sums.
    pub split: bool,
}

/// Maximum number of units that share a key; more would leave each with less than a vector of a
/// usual head.
const MAX_LANES: usize = 16;

impl Share {
    /// For heads of `vectors` vectors.
    pub fn new(vectors: usize, split: bool) -> Self {
        Self { vectors, lanes: vectors.min(MAX_LANES), split }
    }

    /// Bytes of shared memory of [`attend_position`] with this vector width: products, scores, sums
    /// and totals.
    pub fn bytes(self, vector_size: usize) -> usize {
        4 * (BLOCK * self.lanes + BLOCK + self.groups() * self.vectors * vector_size + self.groups())
    }

    /// Keys that are read at once: groups of units with one key each.
    const fn groups(self) -> usize {
        UNITS / self.lanes
    }

    /// Vectors of a key per unit.
    const fn each(self) -> usize {
        self.vectors.div_ceil(self.lanes)
    }
}

/// A launch's part of the new positions.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Part {
    /// Query heads.
    pub n_head: usize,
    /// Key/value heads.
    pub n_kv_head: usize,
    /// Slots of the cache.
    pub slots: usize,
    /// First new position of this launch.
    pub first: usize,
    /// First new position of the launch's run, from which the rows of sums and totals are counted.
    pub run_first: usize,
    /// Cubes that share the keys of a position.
    pub splits: usize,
    /// Keys per cube, in whole blocks.
    pub keys_per_cube: usize,
    /// Factor that scores are multiplied by.
    pub scale: f32,
}

/// Attention of one new position of one head to a piece of its row. `table` is
/// [`CachedRows::table`](super::CachedRows::table).
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn attend_position<T: Float, I: Int, N: Size>(
    qkv: &[Vector<T, N>],
    keys: &mut [Vector<T, N>],
    values: &mut [Vector<T, N>],
    table: &[I],
    y: &mut [Vector<T, N>],
    sums: &mut [Vector<f32, N>],
    totals: &mut [f32],
    part: Part,
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
    let position = part.first + CUBE_POS_X as usize;
    let head = CUBE_POS_Y as usize;
    let served = part.n_head / part.n_kv_head;
    let kv_head = head / served;
    let split = CUBE_POS_Z as usize;
    let kv_width = part.n_kv_head * vectors;
    let width = part.n_head * vectors + 2 * kv_width;
    let new_keys = (part.n_head + kv_head) * vectors;
    let kept = kv_head * part.slots;

    let first_new = usize::cast_from(table[0]);
    let slots = usize::cast_from(table[1 + 2 * position]);
    let seen = usize::cast_from(table[2 + 2 * position]);
    let begin = usize::min(split * part.keys_per_cube, seen);
    let end = usize::min(begin + part.keys_per_cube, seen);

    let mut query = Array::<Vector<f32, N>>::new(each);
    let mut sum = Array::<Vector<f32, N>>::new(each);
    #[unroll]
    for i in 0..each {
        let vector = i * lanes + lane;
        sum[i] = Vector::zeroed();
        query[i] = Vector::zeroed();
        if vector < vectors {
            query[i] =
                Vector::<f32, N>::cast_from(qkv[position * width + head * vectors + vector]) * Vector::new(part.scale);
            // Cubes of this pass read the new keys and values from `qkv`; later passes read them
            // from the cache.
            if split == 0 && head % served == 0 && group == 0 {
                let from = position * width + new_keys + vector;
                let to = (kept + first_new + position) * vectors + vector;
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
        // The scores of the block's keys: each lane's partial dot product, then their sums.
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
                        let value = if slot >= first_new {
                            qkv[(slot - first_new) * width + new_keys + vector]
                        } else {
                            keys[(kept + slot) * vectors + vector]
                        };
                        dots = fma(query[i], Vector::<f32, N>::cast_from(value), dots);
                    }
                }
                products[key * lanes + lane] = sum_of_lanes::<N>(dots);
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
        // Online softmax: rescales the sums so far to the new largest score.
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
        // Adds the block's values, weighted.
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
                        let value = if slot >= first_new {
                            qkv[(slot - first_new) * width + new_keys + kv_width + vector]
                        } else {
                            values[(kept + slot) * vectors + vector]
                        };
                        sum[i] = fma(Vector::new(weight), Vector::<f32, N>::cast_from(value), sum[i]);
                    }
                }
            }
        }
    }

    // Each group has seen different keys: their sums are added up.
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
    let row = ((position - part.run_first) * part.n_head + head) * part.splits + split;
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
                y[(position * part.n_head + head) * vectors + vector] = Vector::cast_from(sum / Vector::new(total));
            }
        }
    }
    if comptime!(share.split) && unit == 0 {
        totals[2 * row] = largest;
        totals[2 * row + 1] = total;
    }
}

/// Adds up the sums of a position's cubes; `start` is the run's first vector in `y`, `count` its
/// number of vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
pub fn add_pieces<T: Float, N: Size>(
    sums: &[Vector<f32, N>],
    totals: &[f32],
    y: &mut [Vector<T, N>],
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
