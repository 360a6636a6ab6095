//! A product of large matrices of float16 or bfloat16 by Hopper's warpgroup instructions, tile by
//! tile.
//!
//! These tensor cores read the factors' slices from shared memory, not from fragments in registers:
//! each of two warpgroups (four planes) multiplies 64 rows by 256 columns of the cube's tile.
//! Meanwhile later slices are copied to shared memory asynchronously, which bypasses registers too.
//! So a plane mainly issues instructions, and each number loaded from the cache is used for 128
//! rows or 256 columns.

use crate::gpu::prelude::*;
use crate::gpu::products::tiled::{
    FactorLayout, Place, VECTOR_SIZE, factor, own_tile, result_stride, sizes, sum_parts,
};
use crate::gpu::ptx::{self, Half, Product};
use crate::gpu::tensor_cores::PLANE;
use crate::gpu::warpgroup::{
    GROUP, NUMBERS, ROW, ROWS, STEP, SWIZZLED, VECTOR_BYTES, WORDS, descriptor, from_sequence, is_hopper, offset,
    own_column, own_vector, rounded, rows_below, step, to_sequence, whole,
};

/// Warpgroups of a cube.
const GROUPS: usize = 2;
/// Units of a cube.
const UNITS: usize = GROUPS * GROUP;
/// Rows of a cube's tile.
const HIGH: usize = GROUPS * ROWS;
/// Columns of a cube's tile.
const COLUMNS: usize = 256;
/// Accumulators of a unit.
const SUMS: usize = COLUMNS / 2;
/// Depth of a slice: what a cube multiplies between two barriers.
const DEPTH: usize = NUMBERS;
/// Bytes of a slice of the first factor.
const SLICE_A: usize = HIGH * ROW;
/// Bytes of a slice of the second factor.
const SLICE_B: usize = COLUMNS * ROW;
/// Slices in shared memory: the one being multiplied, the one before it, which may not be finished,
/// and those being copied.
const STAGES: usize = 4;
/// Slices that are copied ahead.
const AHEAD: usize = STAGES - 2;

/// Compile-time configuration of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// The factors' memory layouts.
    layouts: [FactorLayout; 2],
    /// Their type.
    half: Half,
    /// Whether the sums are written in float32, not rounded to the factors' type.
    whole: bool,
    begins: Begins,
}

/// Initial value of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Begins {
    /// Zeros.
    Zero,
    /// The same row for all rows.
    Bias,
    /// The output's previous values.
    Result,
}

impl Form {
    /// The product of two slices.
    const fn product(self) -> Product {
        let across = [!self.layouts[0].along, !self.layouts[1].along];
        let steps = [step(across[0]), step(across[1])];
        Product { columns: COLUMNS, half: self.half, across, steps, count: DEPTH / STEP }
    }

    /// Vector width of the output.
    const fn written(self) -> usize {
        if self.whole { WORDS } else { 2 * WORDS }
    }
}

/// Bytes from 64 rows or columns of a slice to the next 64, if its rows go across the depth.
const NEXT: usize = DEPTH * ROW;

/// Starts an asynchronous copy of a slice, `rows` rows or columns from `first` on and the depth
/// from `depth` up to `end`, to address `to` in shared memory.
#[cube]
fn copy_slice<T: Float, N: Size>(
    factor: &[Vector<T, N>],
    place: &Place,
    first: usize,
    depth: usize,
    end: usize,
    to: u32,
    #[comptime] rows: usize,
    #[comptime] layout: FactorLayout,
) {
    let vectors = comptime!(if layout.along { DEPTH / VECTOR_SIZE } else { rows / VECTOR_SIZE });
    let start = CUBE_POS_Z as usize * place.between;
    #[unroll]
    for i in 0..comptime!(rows * DEPTH / VECTOR_SIZE / UNITS) {
        let at = UNIT_POS as usize + i * UNITS;
        let (row, vector) = (at / vectors, at % vectors);
        let mut from = 0usize;
        let mut numbers = 0usize;
        let mut within = offset(row, vector % SWIZZLED);
        if comptime!(layout.along) {
            let k = depth + vector * VECTOR_SIZE;
            if first + row < place.extent && k < end {
                from = start + (first + row) * place.stride + k / VECTOR_SIZE;
                numbers = VECTOR_SIZE.runtime();
                if comptime!(layout.ragged) {
                    numbers = usize::min(end - k, VECTOR_SIZE);
                }
            }
        } else {
            within += vector / SWIZZLED * comptime!(NEXT);
            let column = first + vector * VECTOR_SIZE;
            if depth + row < end && column < place.extent {
                from = start + (depth + row) * place.stride + column / VECTOR_SIZE;
                numbers = VECTOR_SIZE.runtime();
            }
        }
        ptx::copy(&factor[from..factor.len()], to + within as u32, numbers as u32 * 2);
    }
}

/// `out[pair, part] = a b` over one part of the depth. Cubes along y take one part each, cubes
/// along z one pair of factors each. In the first part the sums start from `first_sums`, as `form`
/// says.
#[cube(launch_unchecked, address_type = "dynamic")]
fn by_warpgroups<T: Float, N: Size>(
    a: &[Vector<T, N>],
    b: &[Vector<T, N>],
    first_sums: &[f32],
    out: &mut [Vector<u32, Const<WORDS>>],
    place_a: Place,
    place_b: Place,
    out_stride: usize,
    depth: usize,
    part: usize,
    #[comptime] form: Form,
    #[define(T)] _type: ElemType,
) {
    let (layout_a, layout_b) = comptime!((form.layouts[0], form.layouts[1]));
    let slices =
        Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(STAGES * (SLICE_A + SLICE_B) / VECTOR_BYTES), 1024usize);
    let base = ptx::shared_address(&slices);

    let columns = out_stride * comptime!(form.written());
    let (tile_m, tile_n) = own_tile(place_a.extent.div_ceil(HIGH), columns.div_ceil(COLUMNS));
    let (first_m, first_n) = (tile_m * HIGH, tile_n * COLUMNS);
    let begin = CUBE_POS_Y as usize * part;
    let end = usize::min(begin + part, depth);
    let count = (end - begin).div_ceil(DEPTH);

    let my_group = UNIT_POS / comptime!(GROUP as u32);
    let mut sums = Array::<f32>::new(SUMS);
    #[unroll]
    for i in 0..SUMS {
        sums[i] = 0.0;
        if comptime!(form.begins != Begins::Zero) {
            let column = first_n + own_column(i);
            let m =
                first_m + UNIT_POS as usize / PLANE * STEP + comptime!(rows_below(i)) + UNIT_POS as usize % PLANE / 4;
            if begin == 0 && column < place_b.extent && m < place_a.extent {
                let mut place = column;
                if comptime!(form.begins == Begins::Result) {
                    place += m * columns;
                }
                sums[i] = first_sums[place];
            }
        }
    }

    #[unroll]
    for slice in 0..AHEAD {
        if slice < count {
            let at = base + comptime!((slice * (SLICE_A + SLICE_B)) as u32);
            let from = begin + slice * DEPTH;
            copy_slice::<T, N>(a, &place_a, first_m, from, end, at, HIGH, layout_a);
            copy_slice::<T, N>(b, &place_b, first_n, from, end, at + comptime!(SLICE_A as u32), COLUMNS, layout_b);
        }
        ptx::end_copies();
    }
    for slice in 0..count {
        ptx::wait_for_copies(comptime!(AHEAD - 1));
        sync_cube();
        let at = base + (slice % STAGES) as u32 * comptime!((SLICE_A + SLICE_B) as u32);
        let at_a = at + my_group * comptime!((ROWS * ROW) as u32);
        let after = ptx::begin_multiply(
            &to_sequence(&sums, SUMS),
            comptime!(descriptor(NEXT)) + (at_a / VECTOR_BYTES as u32) as u64,
            comptime!(descriptor(NEXT)) + ((at + comptime!(SLICE_A as u32)) / VECTOR_BYTES as u32) as u64,
            comptime!(form.product()),
        );
        from_sequence(&mut sums, &after, SUMS);
        // So all have finished the slice before the previous one, and its buffer is free.
        ptx::wait_for_products_but_the_last();
        let next = slice + AHEAD;
        if next < count {
            let at = base + (next % STAGES) as u32 * comptime!((SLICE_A + SLICE_B) as u32);
            let from = begin + next * DEPTH;
            copy_slice::<T, N>(a, &place_a, first_m, from, end, at, HIGH, layout_a);
            copy_slice::<T, N>(b, &place_b, first_n, from, end, at + comptime!(SLICE_A as u32), COLUMNS, layout_b);
        }
        ptx::end_copies();
    }
    let sums = ptx::finished(&to_sequence(&sums, SUMS), SUMS);

    let (plane, lane) = (UNIT_POS as usize / PLANE, UNIT_POS % comptime!(PLANE as u32));
    let first_out = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) as usize * place_a.extent * out_stride;
    #[unroll]
    for lower in 0..2usize {
        let m = first_m + plane * STEP + lower * 8 + lane as usize / 4;
        let row = first_out + m * out_stride;
        #[unroll]
        for vector in 0..comptime!(COLUMNS / 4 / form.written()) {
            let words = if comptime!(form.whole) {
                whole(&sums, lane, vector, lower)
            } else {
                rounded(&sums, lane, vector, lower, form.half)
            };
            let n = first_n / comptime!(form.written()) + vector * 4 + own_vector(lane, form.whole);
            if m < place_a.extent && n < out_stride {
                out[row + n] = words;
            }
        }
    }
}

/// Minimum number of rows and of columns: below this a tile would be mostly empty.
const FEWEST: usize = 128;
/// Minimum number of slices in a part of the depth.
const MIN_SLICES: usize = 8;
/// Maximum number of parts of the depth.
const MAX_PARTS: usize = 16;
/// Time per slice, in nanoseconds.
const SLICE_NS: usize = 700;
/// Time per tile in addition to its slices, in nanoseconds.
const TILE_NS: usize = 2000;
/// Bytes per nanosecond that memory reads or writes.
const BYTES_A_NS: usize = 2000;

/// Best number of parts of the depth (split-K). With few tiles, parts keep all multiprocessors
/// busy, but each has to be written and summed.
fn best_parts(tiles: usize, slices: usize, multiprocessors: usize, numbers: usize) -> usize {
    let nanoseconds = |parts: &usize| {
        let turns = (tiles * parts).div_ceil(multiprocessors);
        let summing = if *parts > 1 { numbers * parts * 2 * size_of::<f32>() / BYTES_A_NS } else { 0 };
        turns * (slices.div_ceil(*parts) * SLICE_NS + TILE_NS) + summing
    };
    (1..=MAX_PARTS.min(slices / MIN_SLICES).max(1)).min_by_key(nanoseconds).unwrap_or(1)
}

/// The plan of a product by this kernel.
pub struct Plan {
    layouts: [FactorLayout; 2],
    places: [Place; 2],
    half: Half,
    /// Number of pairs of factors.
    count: usize,
    tiles: usize,
    depth: usize,
    /// Depth per cube, and the number of parts of that depth.
    part: usize,
    parts: usize,
}

impl Plan {
    /// The plan for `a b` rounded to `to`; `None` if the kernel does not support the factors or the
    /// device.
    fn of(a: &CubeTensor, b: &CubeTensor, to: DType) -> Option<Self> {
        let [count, m, depth, n] = sizes(a, b);
        let halves = [DType::F16, DType::BF16].contains(&a.dtype) && a.dtype == b.dtype;
        if !is_hopper(&a.client)
            || !halves
            || m < FEWEST
            || n < FEWEST
            || depth < DEPTH
            || ![a.dtype, DType::F32].contains(&to)
        {
            return None;
        }
        let (layout_a, place_a) = factor(a, 0)?;
        let (layout_b, place_b) = factor(b, 1)?;
        let stride = result_stride(n);
        let tiles = m.div_ceil(HIGH) * stride.div_ceil(COLUMNS);
        let multiprocessors = a.client.properties().hardware.num_streaming_multiprocessors.unwrap_or(1) as usize;
        let slices = depth.div_ceil(DEPTH);
        let parts = if count == 1 { best_parts(tiles, slices, multiprocessors, m * stride) } else { 1 };
        let part = slices.div_ceil(parts) * DEPTH;
        let half = if a.dtype == DType::F16 { Half::F16 } else { Half::BF16 };
        let (layouts, places, parts) = ([layout_a, layout_b], [place_a, place_b], depth.div_ceil(part));
        Some(Self { layouts, places, half, count, tiles, depth, part, parts })
    }

    /// The plan for `y + a b` with a float32 `y`; `None` if the kernel cannot add these.
    pub fn of_sum(y: &CubeTensor, a: &CubeTensor, b: &CubeTensor) -> Option<Self> {
        let [count, _, _, n] = sizes(a, b);
        let adds = count == 1 && y.dtype == DType::F32 && n == result_stride(n);
        Self::of(a, b, DType::F32).filter(|plan| adds && plan.parts == 1)
    }

    /// `y + a b`, in place of `y`.
    pub fn add(self, y: CubeTensor, a: &CubeTensor, b: &CubeTensor) -> CubeTensor {
        let y = writable(contiguous(y));
        self.write(a, b, Some((Begins::Result, &y)), &y);
        y
    }

    /// Writes the product of `a` and `b`, part after part, to `out`, whose row stride is
    /// [`result_stride`]. The sums start from `first`, if given.
    fn write(self, a: &CubeTensor, b: &CubeTensor, first: Option<(Begins, &CubeTensor)>, out: &CubeTensor) {
        let Self { layouts, places: [place_a, place_b], half, count, tiles, depth, part, parts } = self;
        let (begins, first) = first.unwrap_or((Begins::Zero, out));
        let form = Form { layouts, half, whole: out.dtype == DType::F32, begins };
        let words = result_stride(sizes(a, b)[3]) / form.written();
        let cubes = CubeCount::Static(tiles as u32, parts as u32, count as u32);
        let grid = Grid::new(&[a, b, out], cubes, CubeDim::new_1d(UNITS as u32));
        // SAFETY: the kernel reads each factor below its extent and the depth, and only rows of
        // `first` and `out` below the rows of `a`; it writes vectors of `out` below the stride, for
        // each part.
        unsafe {
            launch!(
                by_warpgroups,
                grid,
                VECTOR_SIZE,
                [a, b, first, out],
                place_a.argument(),
                place_b.argument(),
                words,
                depth,
                part,
                form,
                elem(a.dtype)
            );
        }
    }
}

/// `a b` as [`tiled`](super::tiled::product) gives it, `+ bias` (float32) if given; `None` if this
/// kernel does not support the factors or the device.
pub fn product(a: &CubeTensor, b: &CubeTensor, bias: Option<&CubeTensor>, to: DType) -> Option<CubeTensor> {
    let plan = Plan::of(a, b, to)?;
    let [count, m, _, n] = sizes(a, b);
    let parts = plan.parts;
    let out = unfilled(a, [count * parts * m, result_stride(n)], if parts > 1 { DType::F32 } else { to });
    plan.write(a, b, bias.map(|bias| (Begins::Bias, bias)), &out);
    Some(sum_parts(out, parts, with_width(a, n), to))
}
