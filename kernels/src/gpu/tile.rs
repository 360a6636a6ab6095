//! The tiles of attention in shared memory: how large they are, how they are loaded, and what
//! multiplies them.
//!
//! A cube owns some positions of one head (its rows) and sweeps over others (its columns). Two
//! products are all it needs: rows times columns over the width of a head, which gives scores, and
//! weights times columns, which gives what is accumulated over the sweep. [`Products`] is either
//! plain multiply-adds, which every device has, or tensor cores.

use cubecl::prelude::*;

/// Sizes of the tiles, known when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Positions that a cube owns.
    pub rows: usize,
    /// Positions that it sweeps over at a time.
    pub columns: usize,
    /// Vectors in the width of a head.
    pub vectors: usize,
    /// Numbers in a vector.
    pub line: usize,
    /// Units of a cube.
    pub units: usize,
    /// Numbers between the end of a row of scores and the next: so that rows do not all begin in
    /// the same memory bank.
    pub gap: usize,
    /// The same between rows of weights.
    pub weight_gap: usize,
    /// Whether the units that share a row are neighbours in a plane whose numbers they may ask for.
    pub planes: bool,
}

impl Tile {
    /// Vectors from a row of queries, keys or values to the next; one is left out, for the banks'
    /// sake.
    pub const fn stride(self) -> usize {
        self.vectors + 1
    }

    /// Numbers from a row of scores to the next.
    pub const fn score_stride(self) -> usize {
        self.columns + self.gap
    }

    /// Numbers from a row of weights to the next.
    pub const fn weight_stride(self) -> usize {
        self.columns + self.weight_gap
    }

    /// Units that share a row of scores.
    pub const fn parts(self) -> usize {
        self.units / self.rows
    }

    /// Columns of a row of scores that a unit takes.
    pub const fn own(self) -> usize {
        self.columns / self.parts()
    }
}

/// The numbers that a unit reads at once: they divide a head, and are at most `widest`.
pub fn line(head_size: usize, widest: usize) -> usize {
    let lines = (0..=widest.ilog2()).rev().map(|i| 1 << i);
    lines.into_iter().find(|line| head_size.is_multiple_of(*line)).unwrap_or(1)
}

/// What a kernel of attention holds in shared memory, in units of its tile.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    /// Heads' vectors for every row, and as many for every column.
    pub vectors: usize,
    /// Matrices of scores.
    pub scores: usize,
    /// Matrices of weights.
    pub weights: usize,
    /// Numbers for each column.
    pub of_columns: usize,
}

/// Shared memory left over for alignment, in bytes.
const SPARE: usize = 256;

impl Holds {
    /// Bytes with such a tile, for numbers of `number` bytes and weights of `weight`.
    pub const fn bytes(self, tile: Tile, number: usize, weight: usize) -> usize {
        self.vectors * (tile.rows + tile.columns) * tile.stride() * tile.line * number
            + tile.rows * (self.scores * tile.score_stride() * 4 + self.weights * tile.weight_stride() * weight + 4)
            + tile.columns * self.of_columns * 4
            + SPARE
    }
}

/// Column number `i` of those that part `part` of row `row` takes. Every eighth row swaps
/// neighbours: with the gaps of tensor cores, the units of a plane then meet in no memory bank.
#[cube]
pub fn own_column(#[comptime] i: usize, row: usize, part: usize, #[comptime] tile: Tile) -> usize {
    if comptime!(tile.own() % 2 == 0) {
        (i ^ (row / 8 % 2)) * comptime!(tile.parts()) + part
    } else {
        i * comptime!(tile.parts()) + part
    }
}

/// Multiplies tiles, all units of a cube together. Callers synchronise before what they pass in is
/// read, and after what comes out is written.
#[cube]
pub trait Products<T: Float, W: Float, N: Size>: 'static + Send + Sync {
    /// `[rows, head_size]` in float32, spread over the units' registers.
    type Accumulator: CubeType;

    /// Zeros.
    fn zeros(#[comptime] tile: Tile) -> Self::Accumulator;

    /// `scores = rows columnsᵀ`, `[rows, columns]`.
    fn scores(rows: &[Vector<T, N>], columns: &[Vector<T, N>], scores: &mut [f32], #[comptime] tile: Tile);

    /// `sum += weights columns` for `weights` `[rows, columns]`.
    fn accumulate(sum: &mut Self::Accumulator, weights: &[W], columns: &[Vector<T, N>], #[comptime] tile: Tile);

    /// Multiplies each row by its factor. `scratch` is `[rows, columns]`.
    fn scale_rows(sum: &mut Self::Accumulator, factors: &[f32], scratch: &mut [f32], #[comptime] tile: Tile);

    /// Writes the first `valid` rows, each times its factor, to `out` from vector `first` on,
    /// `stride` vectors from row to row.
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

/// [`Products`] for every type of number: what a kernel is compiled with.
pub trait ProductsFamily: 'static + Send + Sync {
    /// For values of type `T` in vectors of `N`, and weights of type `W`.
    type Of<T: Float, W: Float, N: Size>: Products<T, W, N>;
}

/// Copies `count` rows of a head into shared memory, from vector `first` of `from` on, `stride`
/// vectors from row to row; rows from `valid` on become zeros.
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

/// Plain multiply-adds, in tiles of registers: units form a square, and each takes every so many
/// rows and columns.
pub struct Units;

impl ProductsFamily for Units {
    type Of<T: Float, W: Float, N: Size> = Units;
}

/// Units along the rows, and along the columns, where there are as many of these.
const UNIT_SIDE: usize = 8;

impl Tile {
    /// A tile for plain multiply-adds.
    pub fn of_units(rows: usize, columns: usize, vectors: usize, line: usize) -> Self {
        let units = rows.min(UNIT_SIDE) * columns.min(UNIT_SIDE);
        Self { rows, columns, vectors, line, units, gap: 1, weight_gap: 1, planes: false }
    }

    /// Units along the rows.
    const fn unit_rows(self) -> usize {
        if self.rows < UNIT_SIDE { self.rows } else { UNIT_SIDE }
    }

    /// Units along the columns.
    const fn unit_columns(self) -> usize {
        self.units / self.unit_rows()
    }

    /// Rows that a unit takes.
    const fn rows_each(self) -> usize {
        self.rows / self.unit_rows()
    }

    /// Columns of scores that a unit takes.
    const fn columns_each(self) -> usize {
        self.columns / self.unit_columns()
    }

    /// Vectors of a head that a unit takes.
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
