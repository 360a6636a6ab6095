//! A product of large matrices of float16 or bfloat16 on tensor cores, tile by tile.
//!
//! A cube owns a tile of the result and sweeps over the depth. Shared memory is double-buffered:
//! while the planes multiply one slice of the factors, the next is loaded from memory into
//! registers; it is then stored to the other half of shared memory, so that each slice costs one
//! barrier. A plane takes a square of the tile, four by four fragments: each fragment that it reads
//! from shared memory is used four times, which keeps the tensor cores busy.
//!
//! A factor's rows may go along the depth or across it. Shared memory keeps its order, and the
//! fragments are loaded as row-major or column-major accordingly.

use burn::tensor::Shape;
use cubecl::cmma::{self, Matrix, MatrixIdent, MatrixLayout};

use crate::gpu::prelude::*;
use crate::gpu::tensor_cores::{PLANE, SIDE, fragment, supports, zero_fragment};

/// Vector width for a half type: 16 bytes.
pub const VECTOR_SIZE: usize = 8;
/// Rows and columns of a cube's tile.
pub const TILE: usize = 128;
/// Depth of a slice: what a cube multiplies between two barriers.
const DEPTH: usize = 32;
/// Planes along the rows of a tile, and along its columns.
const PLANES: usize = 2;
/// Units of a cube.
const UNITS: usize = PLANES * PLANES * PLANE;
/// Fragments along a side of a plane's square.
const FRAGMENTS: usize = TILE / PLANES / SIDE;
/// Vectors of a factor's slice that a unit loads.
const FETCHED: usize = TILE * DEPTH / VECTOR_SIZE / UNITS;
/// Rows of tiles whose cubes run together, so that they share factors in the cache.
const TOGETHER: usize = 16;
/// Stride between rows of a fragment in the output scratch, in numbers; padded against bank
/// conflicts.
const SCRATCH: usize = SIDE + 4;
/// Vectors in a row of a fragment.
const HALVES: usize = SIDE / VECTOR_SIZE;

/// The memory layout of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FactorLayout {
    /// Whether its rows go along the depth, not across it.
    pub along: bool,
    /// Whether its last vector along the depth extends beyond the factor.
    pub ragged: bool,
}

impl FactorLayout {
    /// Rows of a slice in shared memory.
    const fn rows(self) -> usize {
        if self.along { TILE } else { DEPTH }
    }

    /// Vectors in a row.
    const fn vectors(self) -> usize {
        (if self.along { DEPTH } else { TILE }) / VECTOR_SIZE
    }

    /// Stride between rows, in vectors; one vector of padding, against bank conflicts.
    const fn stride(self) -> usize {
        self.vectors() + 1
    }

    /// Vectors of a slice.
    const fn slice(self) -> usize {
        self.rows() * self.stride()
    }
}

/// Strides and size of a factor.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Place {
    /// Row stride, in vectors.
    pub stride: usize,
    /// Size across the depth.
    pub extent: usize,
    /// Vectors from one factor of a batch to the next; cubes along z take one each.
    pub between: usize,
}

impl Place {
    /// As the kernels' argument.
    pub fn argument(self) -> PlaceLaunch {
        PlaceLaunch::new(self.stride, self.extent, self.between)
    }
}

/// Loads a cube's slice of a factor into registers.
#[cube]
fn fetch<T: Float, N: Size>(
    factor: &[Vector<T, N>],
    fetched: &mut Array<Vector<T, N>>,
    place: &Place,
    first: usize,
    depth: usize,
    end: usize,
    #[comptime] layout: FactorLayout,
) {
    let vectors = comptime!(layout.vectors());
    let start = CUBE_POS_Z as usize * place.between;
    #[unroll]
    for i in 0..FETCHED {
        let at = i * UNITS + UNIT_POS as usize;
        let (row, vector) = (at / vectors, at % vectors);
        let mut value = Vector::<T, N>::zeroed();
        if comptime!(layout.along) {
            let k = depth + vector * VECTOR_SIZE;
            if first + row < place.extent && k < end {
                value = factor[start + (first + row) * place.stride + k / VECTOR_SIZE];
                if comptime!(layout.ragged) && k + VECTOR_SIZE > end {
                    #[unroll]
                    for l in 0..VECTOR_SIZE {
                        value.insert(l, select(k + l < end, value.extract(l), T::new(0.0)));
                    }
                }
            }
        } else {
            let k = depth + row;
            let column = first + vector * VECTOR_SIZE;
            if k < end && column < place.extent {
                value = factor[start + k * place.stride + column / VECTOR_SIZE];
            }
        }
        fetched[i] = value;
    }
}

/// Stores what [`fetch`] loaded to shared memory.
#[cube]
fn put<T: Float, N: Size>(
    fetched: &Array<Vector<T, N>>,
    slice: &mut [Vector<T, N>],
    from: usize,
    #[comptime] layout: FactorLayout,
) {
    let vectors = comptime!(layout.vectors());
    #[unroll]
    for i in 0..FETCHED {
        let at = i * UNITS + UNIT_POS as usize;
        slice[from + at / vectors * comptime!(layout.stride()) + at % vectors] = fetched[i];
    }
}

/// `out[pair, part] = a b` over one part of the depth. Cubes along y take one part each, cubes
/// along z one pair of factors each.
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
    #[comptime] layouts: [FactorLayout; 2],
    #[define(T, O)] _types: [ElemType; 2],
) {
    let (layout_a, layout_b) = comptime!((layouts[0], layouts[1]));
    let mut slices_a = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(2 * layout_a.slice()), 32usize);
    let mut slices_b = Shared::<[Vector<T, N>]>::new_aligned_slice(comptime!(2 * layout_b.slice()), 32usize);
    let mut scratch = Shared::<[f32]>::new_aligned_slice(comptime!(UNITS / PLANE * SIDE * SCRATCH), 32usize);

    let (tile_m, tile_n) = own_tile(place_a.extent.div_ceil(TILE), (out_stride * VECTOR_SIZE).div_ceil(TILE));
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
    fetch::<T, N>(a, &mut fetched_a, &place_a, first_m, begin, end, layout_a);
    fetch::<T, N>(b, &mut fetched_b, &place_b, first_n, begin, end, layout_b);
    put::<T, N>(&fetched_a, &mut slices_a, 0usize, layout_a);
    put::<T, N>(&fetched_b, &mut slices_b, 0usize, layout_b);
    sync_cube();

    let steps = (end - begin).div_ceil(DEPTH);
    for step in 0..steps {
        let next = begin + (step + 1) * DEPTH;
        if step + 1 < steps {
            fetch::<T, N>(a, &mut fetched_a, &place_a, first_m, next, end, layout_a);
            fetch::<T, N>(b, &mut fetched_b, &place_b, first_n, next, end, layout_b);
        }
        let (from_a, from_b) = (step % 2 * comptime!(layout_a.slice()), step % 2 * comptime!(layout_b.slice()));
        #[unroll]
        for k in 0..comptime!(DEPTH / SIDE) {
            let mut rows = Sequence::<Matrix<T>>::new();
            #[unroll]
            for i in 0..FRAGMENTS {
                rows.push(loaded::<T, N>(&slices_a, from_a, plane_m + i * SIDE, k, MatrixIdent::A, layout_a));
            }
            #[unroll]
            for j in 0..FRAGMENTS {
                let column = loaded::<T, N>(&slices_b, from_b, plane_n + j * SIDE, k, MatrixIdent::B, layout_b);
                #[unroll]
                for i in 0..FRAGMENTS {
                    let number = comptime!(i * FRAGMENTS + j);
                    cmma::execute(&rows[i], &column, &sums[number], &sums[number]);
                }
            }
        }
        if step + 1 < steps {
            let other = (step + 1) % 2;
            put::<T, N>(&fetched_a, &mut slices_a, other * comptime!(layout_a.slice()), layout_a);
            put::<T, N>(&fetched_b, &mut slices_b, other * comptime!(layout_b.slice()), layout_b);
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
            let n = (first_n + plane_n + j * SIDE) / VECTOR_SIZE + half;
            if m < place_a.extent && n < out_stride {
                let mut values = Vector::<O, N>::zeroed();
                #[unroll]
                for l in 0..VECTOR_SIZE {
                    values.insert(l, O::cast_from(scratch[from + row * SCRATCH + half * VECTOR_SIZE + l]));
                }
                out[out_first + m * out_stride + n] = values;
            }
            sync_plane();
        }
    }
}

/// The tile that a cube owns, as row and column of `tiles_m` by `tiles_n` tiles. Consecutive cubes
/// go column by column through [`TOGETHER`] rows of tiles.
#[cube]
pub fn own_tile(tiles_m: usize, tiles_n: usize) -> (usize, usize) {
    let group = CUBE_POS_X as usize / (TOGETHER * tiles_n);
    let in_group = CUBE_POS_X as usize % (TOGETHER * tiles_n);
    let high = usize::min(tiles_m - group * TOGETHER, TOGETHER);
    (group * TOGETHER + in_group % high, in_group / high)
}

/// The fragment of a slice at `first` across the depth, and number `k` along it.
#[cube]
fn loaded<T: Float, N: Size>(
    slices: &[Vector<T, N>],
    from: usize,
    first: usize,
    #[comptime] k: usize,
    #[comptime] ident: MatrixIdent,
    #[comptime] layout: FactorLayout,
) -> Matrix<T> {
    // A's rows go along the depth, B's columns do.
    let order = comptime!(match (ident, layout.along) {
        (MatrixIdent::A, true) | (MatrixIdent::B, false) => MatrixLayout::RowMajor,
        _ => MatrixLayout::ColMajor,
    });
    let stride = comptime!(layout.stride());
    let mut at = from;
    if comptime!(layout.along) {
        at += first * stride + comptime!(k * SIDE / VECTOR_SIZE);
    } else {
        at += comptime!(k * SIDE * stride) + first / VECTOR_SIZE;
    }
    let mut fragment = fragment::<T>(ident, order);
    cmma::load(&mut fragment, &slices[at..slices.len()], comptime!((stride * VECTOR_SIZE) as u32));
    fragment
}

/// `out` = the sum of `count` parts of equal length.
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

/// Layout and strides of a factor, or of a batch of them. Of the last two dimensions, number
/// `across` is the one that is not the depth. `None` if the rows are not aligned to whole vectors.
pub fn factor(tensor: &CubeTensor, across: usize) -> Option<(FactorLayout, Place)> {
    let rank = tensor.meta.shape().num_dims();
    let (shape, strides) = (&tensor.meta.shape()[rank - 2..], &tensor.meta.strides()[rank - 2..]);
    let between = if rank > 2 { tensor.meta.strides()[0] } else { 0 };
    let depth = 1 - across;
    let along = strides[depth] == 1;
    let (rows, columns) = if along { (across, depth) } else { (depth, across) };
    let stride = strides[rows];
    let whole = strides[columns] == 1
        && [stride, between].iter().all(|step| step.is_multiple_of(VECTOR_SIZE))
        && shape[columns].next_multiple_of(VECTOR_SIZE) <= stride;
    let begins = tensor.handle.offset_start.unwrap_or(0).is_multiple_of((VECTOR_SIZE * tensor.dtype.size()) as u64);
    let layout = FactorLayout { along, ragged: along && !shape[depth].is_multiple_of(VECTOR_SIZE) };
    let place = Place { stride: stride / VECTOR_SIZE, extent: shape[across], between: between / VECTOR_SIZE };
    (whole && begins).then_some((layout, place))
}

/// Minimum number of columns, and minimum depth, for which a tile pays off.
const FEWEST: usize = 32;
/// Cubes that fit on a multiprocessor at once, by their registers.
const AT_ONCE: usize = 2;
/// Minimum number of slices in a part of the depth.
const MIN_SLICES: usize = 8;

/// The number of pairs of factors, the rows of `a`, the depth, and the columns of `b`.
pub fn sizes(a: &CubeTensor, b: &CubeTensor) -> [usize; 4] {
    let (a, b) = (a.meta.shape(), b.meta.shape());
    let rank = a.num_dims();
    [a[..rank - 2].iter().product(), a[rank - 2], a[rank - 1], b[rank - 1]]
}

/// `a b` for `[m, depth]` and `[depth, n]`, or for each pair of two batches; the result's row
/// stride is [`result_stride`]. `None` if this kernel does not support the factors or the device.
pub fn product(a: &CubeTensor, b: &CubeTensor, to: DType) -> Option<CubeTensor> {
    let [count, m, depth, n] = sizes(a, b);
    let fits = a.dtype == b.dtype && n >= FEWEST && depth >= FEWEST;
    if !fits || !supports(&a.client, a.dtype) {
        return None;
    }
    let (layout_a, place_a) = factor(a, 0)?;
    let (layout_b, place_b) = factor(b, 1)?;
    let stride = result_stride(n);
    let tiles = m.div_ceil(TILE) * stride.div_ceil(TILE);
    let at_once = a.client.properties().hardware.num_streaming_multiprocessors.unwrap_or(1) as usize * AT_ONCE;
    let most = if count == 1 { depth / (DEPTH * MIN_SLICES) } else { 1 };
    let part = depth.div_ceil((at_once / tiles.max(1)).clamp(1, most.max(1))).next_multiple_of(DEPTH);
    let parts = depth.div_ceil(part);
    let summed = if parts > 1 { DType::F32 } else { to };
    let out = unfilled(a, [count * parts * m, stride], summed);
    let cubes = CubeCount::Static(tiles as u32, parts as u32, count as u32);
    let grid = Grid::new(&[a, b, &out], cubes, CubeDim::new_1d(UNITS as u32));
    let types = [a.dtype, summed].map(elem);
    let (layouts, place_a, place_b) = ([layout_a, layout_b], place_a.argument(), place_b.argument());
    // SAFETY: the kernel reads each factor below its extent and the depth, and writes rows below `m`
    // of vectors below the stride, for each part.
    unsafe {
        launch!(
            tiled,
            grid,
            VECTOR_SIZE,
            [a, b, &out],
            place_a,
            place_b,
            stride / VECTOR_SIZE,
            depth,
            part,
            layouts,
            types
        );
    }
    Some(sum_parts(out, parts, with_width(a, n), to))
}

/// The sum of the parts of a result of this shape, stored one after another. In a batch each result
/// has one part.
pub fn sum_parts(out: CubeTensor, parts: usize, shape: Shape, to: DType) -> CubeTensor {
    let n = shape[shape.num_dims() - 1];
    let (rows, stride) = (shape.num_elements() / n.max(1), result_stride(n));
    let mut y = out;
    if parts > 1 {
        let (partial, length) = (y, rows * stride / VECTOR_SIZE);
        y = unfilled(&partial, [rows, stride], to);
        // SAFETY: the kernel checks every index against `length`.
        unsafe {
            launch!(
                sum_of_parts,
                Grid::each(&[&partial], length),
                VECTOR_SIZE,
                [&partial, &y],
                length,
                parts,
                elem(to)
            );
        }
    }
    *y.meta = Metadata::new([rows, n], [stride, 1]);
    with_rows(y, shape)
}

/// Row stride of a result with `columns` columns, in numbers: whole vectors, so that it can be a
/// factor itself. The padding is unused.
pub fn result_stride(columns: usize) -> usize {
    if columns.is_multiple_of(VECTOR_SIZE) { columns } else { columns.next_multiple_of(TILE / 2) }
}
