//! A product of large matrices of float16 or bfloat16 on tensor cores, tile by tile.
//!
//! A cube owns a tile of the result. It sweeps over the depth: while its planes multiply one slice
//! of the factors in shared memory, the next is on its way from memory in registers, and goes into
//! the other half of the shared memory when they are done, so that each slice costs one barrier. A
//! plane takes a square of the tile, four by four fragments: each fragment that it reads from shared
//! memory is used four times, which is what tensor cores need not to wait for it.
//!
//! A factor may lie along the depth or across it; it is put into shared memory as it lies, and the
//! tensor cores are told.

use burn::tensor::Shape;
use cubecl::cmma::{self, Matrix, MatrixIdent, MatrixLayout};

use crate::gpu::prelude::*;
use crate::gpu::tensor_cores::{PLANE, SIDE, fragment, takes, zero_fragment};

/// Numbers of a half type that a unit reads at once: 16 bytes.
pub const LINE: usize = 8;
/// Rows and columns of the tile of a cube.
pub const TILE: usize = 128;
/// What a cube multiplies between two barriers.
const DEPTH: usize = 32;
/// Planes along the rows of a tile, and along its columns.
const PLANES: usize = 2;
/// Units of a cube.
const UNITS: usize = PLANES * PLANES * PLANE;
/// Fragments along a side of a plane's square.
const FRAGMENTS: usize = TILE / PLANES / SIDE;
/// Vectors of a factor's slice that a unit fetches.
const FETCHED: usize = TILE * DEPTH / LINE / UNITS;
/// Rows of tiles whose cubes run together, so that they find each other's factors in the cache.
const TOGETHER: usize = 16;
/// Numbers from a row of a fragment that is written to the next, for the banks' sake.
const SCRATCH: usize = SIDE + 4;
/// Vectors of a row of a fragment.
const HALVES: usize = SIDE / LINE;

/// How a factor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lies {
    /// Its rows go along the depth, not across it.
    pub along: bool,
    /// Its last vector along the depth has numbers that are none of it.
    pub ragged: bool,
}

impl Lies {
    /// Rows of a slice in shared memory.
    const fn rows(self) -> usize {
        if self.along { TILE } else { DEPTH }
    }

    /// Vectors in a row.
    const fn vectors(self) -> usize {
        (if self.along { DEPTH } else { TILE }) / LINE
    }

    /// Vectors from a row to the next; one is left out, for the banks' sake.
    const fn stride(self) -> usize {
        self.vectors() + 1
    }

    /// Vectors of a slice.
    const fn slice(self) -> usize {
        self.rows() * self.stride()
    }
}

/// Where a factor lies.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Place {
    /// Vectors from a row to the next.
    pub stride: usize,
    /// Its extent across the depth.
    pub extent: usize,
    /// Vectors from a factor to the next, where there are several, one for each cube along z.
    pub between: usize,
}

impl Place {
    /// As the kernels' argument.
    pub fn argument(self) -> PlaceLaunch {
        PlaceLaunch::new(self.stride, self.extent, self.between)
    }
}

/// What of a factor a cube fetches.
#[cube]
fn fetch<T: Float, N: Size>(
    factor: &[Vector<T, N>],
    fetched: &mut Array<Vector<T, N>>,
    place: &Place,
    first: usize,
    depth: usize,
    end: usize,
    #[comptime] lies: Lies,
) {
    let vectors = comptime!(lies.vectors());
    let start = CUBE_POS_Z as usize * place.between;
    #[unroll]
    for i in 0..FETCHED {
        let at = i * UNITS + UNIT_POS as usize;
        let (row, vector) = (at / vectors, at % vectors);
        let mut value = Vector::<T, N>::zeroed();
        if comptime!(lies.along) {
            let k = depth + vector * LINE;
            if first + row < place.extent && k < end {
                value = factor[start + (first + row) * place.stride + k / LINE];
                if comptime!(lies.ragged) && k + LINE > end {
                    #[unroll]
                    for l in 0..LINE {
                        value.insert(l, select(k + l < end, value.extract(l), T::new(0.0)));
                    }
                }
            }
        } else {
            let k = depth + row;
            let column = first + vector * LINE;
            if k < end && column < place.extent {
                value = factor[start + k * place.stride + column / LINE];
            }
        }
        fetched[i] = value;
    }
}

/// Puts what was fetched into shared memory.
#[cube]
fn put<T: Float, N: Size>(
    fetched: &Array<Vector<T, N>>,
    slice: &mut [Vector<T, N>],
    from: usize,
    #[comptime] lies: Lies,
) {
    let vectors = comptime!(lies.vectors());
    #[unroll]
    for i in 0..FETCHED {
        let at = i * UNITS + UNIT_POS as usize;
        slice[from + at / vectors * comptime!(lies.stride()) + at % vectors] = fetched[i];
    }
}

/// `out[factors, part] = a b` over the depths of a part: cubes along y take one each, those along z one
/// pair of factors each.
#[cube(launch_unchecked, address_type = "dynamic")]
fn tiled<T: Float, O: Float, N: Size>(
    a: &[Vector<T, N>],
    b: &[Vector<T, N>],
    out: &mut [Vector<O, N>],
    place_a: Place,
    place_b: Place,
    out_stride: usize,
    depth: usize,
    part: usize,
    #[comptime] lies: [Lies; 2],
    #[define(T, O)] _types: [ElemType; 2],
) {
    let (lies_a, lies_b) = comptime!((lies[0], lies[1]));
    let mut slices_a = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(2 * lies_a.slice()), 32usize);
    let mut slices_b = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(2 * lies_b.slice()), 32usize);
    let mut scratch = Shared::<[f32]>::new_aligned_slice(comptime!(UNITS / PLANE * SIDE * SCRATCH), 32usize);

    let (tile_m, tile_n) = own_tile(place_a.extent.div_ceil(TILE), (out_stride * LINE).div_ceil(TILE));
    let (first_m, first_n) = (tile_m * TILE, tile_n * TILE);
    let begin = CUBE_POS_Y as usize * part;
    let end = usize::min(begin + part, depth);

    let plane = UNIT_POS as usize / PLANE;
    let (plane_m, plane_n) = (plane / PLANES * (FRAGMENTS * SIDE), plane % PLANES * (FRAGMENTS * SIDE));
    let mut sums = Sequence::<Matrix<f32>>::new();
    #[unroll]
    for _ in 0..comptime!(FRAGMENTS * FRAGMENTS) {
        sums.push(zero_fragment());
    }

    let mut fetched_a = Array::<Vector<T, N>>::new(FETCHED);
    let mut fetched_b = Array::<Vector<T, N>>::new(FETCHED);
    fetch::<T, N>(a, &mut fetched_a, &place_a, first_m, begin, end, lies_a);
    fetch::<T, N>(b, &mut fetched_b, &place_b, first_n, begin, end, lies_b);
    put::<T, N>(&fetched_a, &mut slices_a, 0usize, lies_a);
    put::<T, N>(&fetched_b, &mut slices_b, 0usize, lies_b);
    sync_cube();

    let steps = (end - begin).div_ceil(DEPTH);
    for step in 0..steps {
        let next = begin + (step + 1) * DEPTH;
        if step + 1 < steps {
            fetch::<T, N>(a, &mut fetched_a, &place_a, first_m, next, end, lies_a);
            fetch::<T, N>(b, &mut fetched_b, &place_b, first_n, next, end, lies_b);
        }
        let (from_a, from_b) = (step % 2 * comptime!(lies_a.slice()), step % 2 * comptime!(lies_b.slice()));
        #[unroll]
        for k in 0..comptime!(DEPTH / SIDE) {
            let mut rows = Sequence::<Matrix<T>>::new();
            #[unroll]
            for i in 0..FRAGMENTS {
                rows.push(loaded::<T, N>(&slices_a, from_a, plane_m + i * SIDE, k, MatrixIdent::A, lies_a));
            }
            #[unroll]
            for j in 0..FRAGMENTS {
                let column = loaded::<T, N>(&slices_b, from_b, plane_n + j * SIDE, k, MatrixIdent::B, lies_b);
                #[unroll]
                for i in 0..FRAGMENTS {
                    let number = comptime!(i * FRAGMENTS + j);
                    cmma::execute(&rows[i], &column, &sums[number], &sums[number]);
                }
            }
        }
        if step + 1 < steps {
            let other = (step + 1) % 2;
            put::<T, N>(&fetched_a, &mut slices_a, other * comptime!(lies_a.slice()), lies_a);
            put::<T, N>(&fetched_b, &mut slices_b, other * comptime!(lies_b.slice()), lies_b);
        }
        sync_cube();
    }

    let from = plane * comptime!(SIDE * SCRATCH);
    let lane = UNIT_POS as usize % PLANE;
    let (row, half) = (lane / HALVES, lane % HALVES);
    let out_first = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) as usize * place_a.extent * out_stride;
    #[unroll]
    for i in 0..FRAGMENTS {
        #[unroll]
        for j in 0..FRAGMENTS {
            let number = comptime!(i * FRAGMENTS + j);
            let all = scratch.len();
            cmma::store(&mut scratch[from..all], &sums[number], SCRATCH as u32, MatrixLayout::RowMajor);
            sync_plane();
            let m = first_m + plane_m + i * SIDE + row;
            let n = (first_n + plane_n + j * SIDE) / LINE + half;
            if m < place_a.extent && n < out_stride {
                let mut values = Vector::<O, N>::zeroed();
                #[unroll]
                for l in 0..LINE {
                    values.insert(l, O::cast_from(scratch[from + row * SCRATCH + half * LINE + l]));
                }
                out[out_first + m * out_stride + n] = values;
            }
            sync_plane();
        }
    }
}

/// Which of `tiles_m` by `tiles_n` tiles a cube owns, counted down and across. Cubes that run at the
/// same time go column by column through [`TOGETHER`] rows of tiles.
#[cube]
pub fn own_tile(tiles_m: usize, tiles_n: usize) -> (usize, usize) {
    let group = CUBE_POS_X as usize / (TOGETHER * tiles_n);
    let in_group = CUBE_POS_X as usize % (TOGETHER * tiles_n);
    let high = usize::min(tiles_m - group * TOGETHER, TOGETHER);
    (group * TOGETHER + in_group % high, in_group / high)
}

/// The fragment of a slice that begins at `first` across the depth, and is number `k` along it.
#[cube]
fn loaded<T: Float, N: Size>(
    slices: &[Vector<T, N>],
    from: usize,
    first: usize,
    #[comptime] k: usize,
    #[comptime] ident: MatrixIdent,
    #[comptime] lies: Lies,
) -> Matrix<T> {
    // A's rows go along the depth, B's columns do.
    let layout = comptime!(match (ident, lies.along) {
        (MatrixIdent::A, true) | (MatrixIdent::B, false) => MatrixLayout::RowMajor,
        _ => MatrixLayout::ColMajor,
    });
    let stride = comptime!(lies.stride());
    let mut at = from;
    if comptime!(lies.along) {
        at += first * stride + comptime!(k * SIDE / LINE);
    } else {
        at += comptime!(k * SIDE * stride) + first / LINE;
    }
    let mut fragment = fragment::<T>(ident, layout);
    cmma::load(&mut fragment, &slices[at..slices.len()], comptime!((stride * LINE) as u32));
    fragment
}

/// `out = sum of parts`, each as long.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_of_parts<O: Float, N: Size>(
    parts: &[Vector<f32, N>],
    out: &mut [Vector<O, N>],
    length: usize,
    count: usize,
    #[define(O)] _type: ElemType,
) {
    if ABSOLUTE_POS < length {
        let mut sum = parts[ABSOLUTE_POS];
        for part in 1..count {
            sum += parts[part * length + ABSOLUTE_POS];
        }
        out[ABSOLUTE_POS] = Vector::cast_from(sum);
    }
}

/// A factor as the kernel takes it, or a list of them: of the last two dimensions number `across` is the
/// one that is not the depth. `None` where it does not lie in whole vectors.
pub fn factor(tensor: &CubeTensor, across: usize) -> Option<(Lies, Place)> {
    let rank = tensor.meta.shape().num_dims();
    let (shape, strides) = (&tensor.meta.shape()[rank - 2..], &tensor.meta.strides()[rank - 2..]);
    let between = if rank > 2 { tensor.meta.strides()[0] } else { 0 };
    let depth = 1 - across;
    let along = strides[depth] == 1;
    let (rows, columns) = if along { (across, depth) } else { (depth, across) };
    let stride = strides[rows];
    let whole = strides[columns] == 1
        && [stride, between].iter().all(|step| step.is_multiple_of(LINE))
        && shape[columns].next_multiple_of(LINE) <= stride;
    let begins = tensor.handle.offset_start.unwrap_or(0).is_multiple_of((LINE * tensor.dtype.size()) as u64);
    let lies = Lies { along, ragged: along && !shape[depth].is_multiple_of(LINE) };
    let place = Place { stride: stride / LINE, extent: shape[across], between: between / LINE };
    (whole && begins).then_some((lies, place))
}

/// Fewest columns, and least depth, that are worth a tile.
const FEWEST: usize = 32;
/// Cubes that a multiprocessor holds at once, by their registers.
const AT_ONCE: usize = 2;
/// Slices that a part of the depth has at least.
const FEWEST_SLICES: usize = 8;

/// How many pairs of factors there are, the rows of `a`, the depth, and the columns of `b`.
pub fn sizes(a: &CubeTensor, b: &CubeTensor) -> [usize; 4] {
    let (a, b) = (a.meta.shape(), b.meta.shape());
    let rank = a.num_dims();
    [a[..rank - 2].iter().product(), a[rank - 2], a[rank - 1], b[rank - 1]]
}

/// `a b` for `[m, depth]` and `[depth, n]`, or for each pair in two lists of such factors, its rows as far
/// apart as [`result_stride`] says; `None` where this is not for such factors or such a device.
pub fn product(a: &CubeTensor, b: &CubeTensor, to: DType) -> Option<CubeTensor> {
    let [count, m, depth, n] = sizes(a, b);
    let fits = a.dtype == b.dtype && n >= FEWEST && depth >= FEWEST;
    if !fits || !takes(&a.client, a.dtype) {
        return None;
    }
    let (lies_a, place_a) = factor(a, 0)?;
    let (lies_b, place_b) = factor(b, 1)?;
    let stride = result_stride(n);
    let tiles = m.div_ceil(TILE) * stride.div_ceil(TILE);
    let at_once = a.client.properties().hardware.num_streaming_multiprocessors.unwrap_or(1) as usize * AT_ONCE;
    let most = if count == 1 { depth / (DEPTH * FEWEST_SLICES) } else { 1 };
    let part = depth.div_ceil((at_once / tiles).clamp(1, most.max(1))).next_multiple_of(DEPTH);
    let parts = depth.div_ceil(part);
    let summed = if parts > 1 { DType::F32 } else { to };
    let out = unfilled(a, [count * parts * m, stride], summed);
    let cubes = CubeCount::Static(tiles as u32, parts as u32, count as u32);
    let grid = Grid::new(&[a, b, &out], cubes, CubeDim::new_1d(UNITS as u32));
    let types = [a.dtype, summed].map(elem);
    let (lies, place_a, place_b) = ([lies_a, lies_b], place_a.argument(), place_b.argument());
    // SAFETY: the kernel reads each factor below its extent and the depth, and writes rows below `m`
    // of vectors below the stride, for each part.
    unsafe {
        launch!(tiled, grid, LINE, [a, b, &out], place_a, place_b, stride / LINE, depth, part, lies, types);
    }
    Some(sum_parts(out, parts, with_width(a, n), to))
}

/// The sum of the parts of a result of this shape, which are below each other. Of a list of results each
/// is one part.
pub fn sum_parts(out: CubeTensor, parts: usize, shape: Shape, to: DType) -> CubeTensor {
    let n = shape[shape.num_dims() - 1];
    let (rows, stride) = (shape.num_elements() / n.max(1), result_stride(n));
    let mut y = out;
    if parts > 1 {
        let (partial, length) = (y, rows * stride / LINE);
        y = unfilled(&partial, [rows, stride], to);
        // SAFETY: the kernel looks at `length` before it reads or writes a place.
        unsafe {
            launch!(sum_of_parts, Grid::each(&[&partial], length), LINE, [&partial, &y], length, parts, elem(to));
        }
    }
    *y.meta = Metadata::new([rows, n], [stride, 1]);
    with_rows(y, shape)
}

/// Numbers from a row of a result of so many columns to the next: whole vectors, so that it can be
/// a factor itself. What a row has beyond its columns is nobody's.
pub fn result_stride(columns: usize) -> usize {
    if columns.is_multiple_of(LINE) { columns } else { columns.next_multiple_of(TILE / 2) }
}
