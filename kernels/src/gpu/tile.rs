//! Attention's tiles in shared memory: their sizes, how they are loaded, and how they are
//! multiplied.
//!
//! A cube owns some positions of one head (its rows) and sweeps over others (its columns). It needs
//! two products: rows times columns over the head dimension, which gives scores, and weights times
//! columns, which is accumulated over the sweep. [`Products`] does both by plain multiply-adds, on
//! every device, or by tensor cores.

use cubecl::prelude::*;

/// Tile sizes: compile-time constants of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Positions that a cube owns.
    pub rows: usize,
    /// Positions that it sweeps over at a time.
    pub columns: usize,
    /// Vectors in a head.
    pub vectors: usize,
    /// Vector width: numbers that a unit loads at once.
    pub vector_size: usize,
    /// Units of a cube.
    pub units: usize,
    /// Padding between rows of scores, in numbers, against bank conflicts.
    pub gap: usize,
    /// Padding between rows of weights.
    pub weight_gap: usize,
    /// Whether the units that share a row are adjacent in a plane, and can exchange values by
    /// shuffles.
    pub planes: bool,
}

impl Tile {
    /// Stride between rows of queries, keys or values, in vectors; one vector of padding, against
    /// bank conflicts.
    pub const fn stride(self) -> usize {
        self.vectors + 1
    }

    /// Stride between rows of scores, in numbers.
    pub const fn score_stride(self) -> usize {
        self.columns + self.gap
    }

    /// Stride between rows of weights, in numbers.
    pub const fn weight_stride(self) -> usize {
        self.columns + self.weight_gap
    }

    /// Units that share a row of scores.
    pub const fn parts(self) -> usize {
        self.units / self.rows
    }

    /// Columns of a row of scores per unit.
    pub const fn own(self) -> usize {
        self.columns / self.parts()
    }
}

/// Vector width for heads of `head_size`: the largest power of two up to `widest` that divides it.
pub fn head_vector_size(head_size: usize, widest: usize) -> usize {
    let sizes = (0..=widest.ilog2()).rev().map(|i| 1 << i);
    sizes.into_iter().find(|size| head_size.is_multiple_of(*size)).unwrap_or(1)
}

/// What an attention kernel keeps in shared memory, in terms of its tile.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Matrices of head vectors for the rows, and as many for the columns.
    pub vectors: usize,
    /// Matrices of scores.
    pub scores: usize,
    /// Matrices of weights.
    pub weights: usize,
    /// Single numbers for each column.
    pub of_columns: usize,
}

/// Bytes of shared memory reserved for alignment.
const SPARE: usize = 256;

impl Footprint {
    /// Bytes of shared memory with this tile, for numbers of `number` bytes and weights of `weight`
    /// bytes.
    pub const fn bytes(self, tile: Tile, number: usize, weight: usize) -> usize {
        self.vectors * (tile.rows + tile.columns) * tile.stride() * tile.vector_size * number
            + tile.rows * (self.scores * tile.score_stride() * 4 + self.weights * tile.weight_stride() * weight + 4)
            + tile.columns * self.of_columns * 4
            + SPARE
    }
}

/// Column number `i` of the unit that has part `part` of row `row`. In every other group of eight
/// rows a unit's adjacent columns are swapped: with the padding for tensor cores, a plane's units
/// then have no bank conflicts.
#[cube]
pub fn own_column(#[comptime] i: usize, row: usize, part: usize, #[comptime] tile: Tile) -> usize {
    if comptime!(tile.own() % 2 == 0) {
        (i ^ (row / 8 % 2)) * comptime!(tile.parts()) + part
    } else {
        i * comptime!(tile.parts()) + part
    }
}

/// Multiplies tiles, by all units of a cube together. Callers synchronise the cube between writing
/// the inputs and these calls, and before they read the outputs.
#[cube]
pub trait Products<T: Float, W: Float, N: Size>: 'static + Send + Sync {
    /// `[rows, head_size]` in float32, distributed over the units' registers.
    type Accumulator: CubeType;

    /// Zeros.
    fn zeros(#[comptime] tile: Tile) -> Self::Accumulator;

    /// `scores = rows columnsᵀ`, `[rows, columns]`.
    fn scores(rows: &[Vector<T, N>], columns: &[Vector<T, N>], scores: &mut [f32], #[comptime] tile: Tile);

    /// `sum += weights columns` for `weights` `[rows, columns]`.
    fn accumulate(sum: &mut Self::Accumulator, weights: &[W], columns: &[Vector<T, N>], #[comptime] tile: Tile);

    /// Multiplies each row by its factor. `scratch` is `[rows, columns]`.
    fn scale_rows(sum: &mut Self::Accumulator, factors: &[f32], scratch: &mut [f32], #[comptime] tile: Tile);

    /// Writes the first `valid` rows, each times its factor, to `out` from vector `first` on, with
    /// a stride of `stride` vectors.
    fn write(
        sum: &Self::Accumulator,
        factors: &[f32],
        scratch: &mut [f32],
        out: &mut [Vector<T, N>],
        first: usize,
        stride: usize,
        valid: usize,
        #[comptime] tile: Tile,
    );
}

/// [`Products`] for every type of number: a kernel's type parameter.
pub trait ProductsFamily: 'static + Send + Sync {
    /// For values of type `T` in vectors of `N`, and weights of type `W`.
    type Of<T: Float, W: Float, N: Size>: Products<T, W, N>;
}

/// Copies `count` rows of a head into shared memory, from vector `first` of `from` on, with a
/// stride of `stride` vectors; rows from `valid` on become zeros.
#[cube]
pub fn load<T: Float, N: Size>(
    from: &[Vector<T, N>],
    first: usize,
    stride: usize,
    valid: usize,
    to: &mut [Vector<T, N>],
    #[comptime] count: usize,
    #[comptime] tile: Tile,
) {
    let all = comptime!(count * tile.vectors);
    #[unroll]
    for step in 0..comptime!(all.div_ceil(tile.units)) {
        let i = step * tile.units + UNIT_POS as usize;
        if comptime!(all % tile.units == 0) || i < all {
            let row = i / tile.vectors;
            let vector = i % tile.vectors;
            let mut value = Vector::<T, N>::zeroed();
            if row < valid {
                value = from[first + row * stride + vector];
            }
            to[row * comptime!(tile.stride()) + vector] = value;
        }
    }
}

/// The sum of a vector's numbers, first to last.
#[cube]
pub fn sum_of_lanes<N: Size>(lanes: Vector<f32, N>) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..N::value() {
        sum += lanes.extract(lane);
    }
    sum
}

/// Plain multiply-adds with register tiles: the units form a square, and each takes rows and
/// columns at a fixed stride.
pub struct Units;

impl ProductsFamily for Units {
    type Of<T: Float, W: Float, N: Size> = Units;
}

/// Units along the rows, and along the columns, of tiles that are large enough.
const UNIT_SIDE: usize = 8;

impl Tile {
    /// A tile for plain multiply-adds.
    pub fn of_units(rows: usize, columns: usize, vectors: usize, vector_size: usize) -> Self {
        let units = rows.min(UNIT_SIDE) * columns.min(UNIT_SIDE);
        Self { rows, columns, vectors, vector_size, units, gap: 1, weight_gap: 1, planes: false }
    }

    /// Units along the rows.
    const fn unit_rows(self) -> usize {
        if self.rows < UNIT_SIDE { self.rows } else { UNIT_SIDE }
    }

    /// Units along the columns.
    const fn unit_columns(self) -> usize {
        self.units / self.unit_rows()
    }

    /// Rows per unit.
    const fn rows_each(self) -> usize {
        self.rows / self.unit_rows()
    }

    /// Columns of scores per unit.
    const fn columns_each(self) -> usize {
        self.columns / self.unit_columns()
    }

    /// Vectors of a head per unit.
    const fn vectors_each(self) -> usize {
        self.vectors.div_ceil(self.unit_columns())
    }
}

#[cube]
impl<T: Float, W: Float, N: Size> Products<T, W, N> for Units {
    type Accumulator = Array<Vector<f32, N>>;

    fn zeros(#[comptime] tile: Tile) -> Self::Accumulator {
        let mut sum = Array::<Vector<f32, N>>::new(comptime!(tile.rows_each() * tile.vectors_each()));
        #[unroll]
        for i in 0..comptime!(tile.rows_each() * tile.vectors_each()) {
            sum[i] = Vector::zeroed();
        }
        sum
    }

    fn scores(rows: &[Vector<T, N>], columns: &[Vector<T, N>], scores: &mut [f32], #[comptime] tile: Tile) {
        let (down, across) = comptime!((tile.unit_rows(), tile.unit_columns()));
        let (unit_row, unit_column) = (UNIT_POS as usize / across, UNIT_POS as usize % across);
        let (high, wide) = comptime!((tile.rows_each(), tile.columns_each()));
        let mut sums = Array::<Vector<f32, N>>::new(comptime!(high * wide));
        #[unroll]
        for i in 0..comptime!(high * wide) {
            sums[i] = Vector::zeroed();
        }
        for vector in 0..tile.vectors {
            let mut b = Array::<Vector<f32, N>>::new(wide);
            #[unroll]
            for j in 0..wide {
                b[j] = Vector::cast_from(columns[(unit_column + j * across) * comptime!(tile.stride()) + vector]);
            }
            #[unroll]
            for i in 0..high {
                let a = Vector::<f32, N>::cast_from(rows[(unit_row + i * down) * comptime!(tile.stride()) + vector]);
                #[unroll]
                for j in 0..wide {
                    sums[i * wide + j] = fma(a, b[j], sums[i * wide + j]);
                }
            }
        }
        #[unroll]
        for i in 0..high {
            #[unroll]
            for j in 0..wide {
                let (row, column) = (unit_row + i * down, unit_column + j * across);
                scores[row * comptime!(tile.score_stride()) + column] = sum_of_lanes::<N>(sums[i * wide + j]);
            }
        }
    }

    fn accumulate(sum: &mut Self::Accumulator, weights: &[W], columns: &[Vector<T, N>], #[comptime] tile: Tile) {
        let (down, across) = comptime!((tile.unit_rows(), tile.unit_columns()));
        let (unit_row, unit_column) = (UNIT_POS as usize / across, UNIT_POS as usize % across);
        let (high, wide) = comptime!((tile.rows_each(), tile.vectors_each()));
        for column in 0..tile.columns {
            let mut w = Array::<Vector<f32, N>>::new(high);
            #[unroll]
            for i in 0..high {
                let weight = weights[(unit_row + i * down) * comptime!(tile.weight_stride()) + column];
                w[i] = Vector::new(f32::cast_from(weight));
            }
            #[unroll]
            for j in 0..wide {
                let vector = unit_column + j * across;
                if comptime!(tile.vectors % across == 0) || vector < tile.vectors {
                    let b = Vector::<f32, N>::cast_from(columns[column * comptime!(tile.stride()) + vector]);
                    #[unroll]
                    for i in 0..high {
                        sum[i * wide + j] = fma(w[i], b, sum[i * wide + j]);
                    }
                }
            }
        }
    }

    fn scale_rows(sum: &mut Self::Accumulator, factors: &[f32], _scratch: &mut [f32], #[comptime] tile: Tile) {
        let (down, across) = comptime!((tile.unit_rows(), tile.unit_columns()));
        let unit_row = UNIT_POS as usize / across;
        let (high, wide) = comptime!((tile.rows_each(), tile.vectors_each()));
        #[unroll]
        for i in 0..high {
            let factor = Vector::<f32, N>::new(factors[unit_row + i * down]);
            #[unroll]
            for j in 0..wide {
                sum[i * wide + j] = sum[i * wide + j] * factor;
            }
        }
    }

    fn write(
        sum: &Self::Accumulator,
        factors: &[f32],
        _scratch: &mut [f32],
        out: &mut [Vector<T, N>],
        first: usize,
        stride: usize,
        valid: usize,
        #[comptime] tile: Tile,
    ) {
        let (down, across) = comptime!((tile.unit_rows(), tile.unit_columns()));
        let (unit_row, unit_column) = (UNIT_POS as usize / across, UNIT_POS as usize % across);
        let (high, wide) = comptime!((tile.rows_each(), tile.vectors_each()));
        #[unroll]
        for i in 0..high {
            let row = unit_row + i * down;
            let factor = Vector::<f32, N>::new(factors[row]);
            #[unroll]
            for j in 0..wide {
                let vector = unit_column + j * across;
                if row < valid && (comptime!(tile.vectors % across == 0) || vector < tile.vectors) {
                    out[first + row * stride + vector] = Vector::cast_from(sum[i * wide + j] * factor);
                }
            }
        }
    }
}
