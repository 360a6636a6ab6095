//! Matrix products on the CPU, float32 and bfloat16, after [Goto and van de Geijn
//! 2008](https://doi.org/10.1145/1356052.1356053): a tile of the result stays in registers while
//! the sums run (`tile.rs`), on panels of the factors that are packed in the order in which they
//! are read (`pack.rs`), by the instructions that the processor has (`instructions.rs`).
//!
//! A value of the result is one chain of multiplications and additions in the order of k, in blocks
//! whose borders depend on k alone. So its bits do not depend on how the result is divided among
//! threads.

pub mod instructions;
pub mod matrix;
mod pack;
#[cfg(test)]
mod tests;
mod tile;
#[cfg(target_arch = "x86_64")]
pub mod x86;

use std::cell::RefCell;
use std::ops::Range;
use std::ptr::null;

use rayon::prelude::*;

use instructions::InstructionSet;
pub use instructions::{Element, multiplies_bf16};
pub use matrix::{Matrix, MatrixMut};
use pack::{LANE_BYTES, LINE, Lane, Line, PANEL_ROWS};
use tile::{Factor, Finish, Tile};

/// Where a factor lies: its first value and the distance between rows and between columns.
#[derive(Debug)]
struct View<T> {
    start: *const T,
    row: usize,
    column: usize,
}

impl<T> View<T> {
    fn of(matrix: &Matrix<T>) -> Self {
        let [row, column] = matrix.step;
        Self { start: matrix.start(), row, column }
    }

    /// The matrix from a row and a column on.
    fn from(&self, row: usize, column: usize) -> Self {
        // Not `add`: of an empty matrix nothing is read, wherever it is.
        Self { start: self.start.wrapping_add(row * self.row + column * self.column), ..*self }
    }
}

/// Where a result is written, by several threads each a part of its own.
#[derive(Debug)]
pub struct Target<O> {
    start: *mut O,
    row: usize,
}

impl<O> Clone for Target<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Target<O> {}

// SAFETY: made of a matrix that is borrowed to be written; the threads write to disjoint parts.
unsafe impl<O> Sync for Target<O> {}

/// Who computes a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The thread that asks for it.
    One,
    /// All of rayon's, where the product is large enough to be worth waking them.
    All,
}

/// `c = a b`, or `c += a b` if `accumulate`, for a `[m, k]`, b `[k, n]` and c `[m, n]`.
pub fn product<T: Element>(c: MatrixMut, accumulate: bool, a: Matrix<T>, b: Matrix<T>, threads: Threads) {
    let onto = if accumulate { Onto::Result } else { Onto::Nothing };
    Product { a, b, onto, bias: None }.write(c, threads);
}

/// What a product is added to on its way to memory.
#[derive(Clone, Copy, Debug)]
pub enum Onto<'a> {
    /// Nothing.
    Nothing,
    /// What stands where it goes, in float32.
    Result,
    /// A matrix `[m, n]`, a row's values side by side.
    Matrix(Matrix<'a>),
}

/// A product of `[m, k]` and `[k, n]`.
#[derive(Debug)]
pub struct Product<'a, T> {
    /// `[m, k]`.
    pub a: Matrix<'a, T>,
    /// `[k, n]`.
    pub b: Matrix<'a, T>,
    /// What it is added to.
    pub onto: Onto<'a>,
    /// A row `[n]` to add to every row.
    pub bias: Option<&'a [f32]>,
}

/// Below this many multiplications a product is done on one thread: waking the others costs more.
const WORTH_SHARING: usize = 48 * 48 * 256;

/// Up to so many rows of a result, float32 columns of `b` that lie side by side are read where they
/// are: too few would read them packed. More must not: rows of b a power of two apart share a few
/// places of the cache, and each tile would wait for them anew.
const FEW_ROWS: usize = 64;

/// Up to so many values from one k to the next for each column of a panel, or so few of k, float32
/// rows of a transposed `a` are read where they are.
const NEAR: usize = 4;
const FEW: usize = 64;

/// Rows that pass by a panel at once, for each of its columns: enough for its packing to be little
/// of the work, few enough for them to be still near when the next panel comes. A multiple of a
/// tile's.
const ROWS_AT_ONCE: usize = 12;

impl<T: Element> Product<'_, T> {
    /// Writes the product to c.
    ///
    /// # Panics
    /// When the sizes of the matrices do not go together.
    pub fn write<O: Element>(&self, c: MatrixMut<O>, threads: Threads) {
        let [m, n, k] = self.size();
        let onto_fits = match self.onto {
            Onto::Nothing => true,
            Onto::Result => size_of::<O>() == size_of::<f32>(),
            Onto::Matrix(onto) => onto.size == [m, n] && onto.step[1] == 1,
        };
        let bias_fits = self.bias.is_none_or(|bias| bias.len() == n);
        let fits = self.b.size[0] == k && c.size == [m, n] && onto_fits && bias_fits;
        assert!(fits, "{:?} times {:?} into {:?}", self.a.size, self.b.size, c.size);
        let (c, compute) = (Target { start: c.start, row: c.step }, T::compute::<O>());
        let all = rayon::current_num_threads();
        if threads == Threads::One || all == 1 || m * n * k < WORTH_SHARING {
            // SAFETY: the matrices are there and of these sizes, and the processor has what
            // `compute` was chosen by.
            return unsafe { compute(self, c, 0..m, 0..n) };
        }
        self.parts(all).into_par_iter().with_max_len(1).for_each(|[rows, columns]| {
            // SAFETY: as above; each part is written by one thread.
            unsafe { compute(self, c, rows, columns) };
        });
    }

    /// The result divided for so many threads, as rows and columns: such that the largest part
    /// takes as little as possible.
    fn parts(&self, threads: usize) -> Vec<[Range<usize>; 2]> {
        let [m, n, _] = self.size();
        let sizes = |down: usize| {
            let across = threads.div_ceil(down);
            [m.div_ceil(down).next_multiple_of(PANEL_ROWS), n.div_ceil(across).next_multiple_of(LINE)]
        };
        let longest = |[rows, columns]: [usize; 2]| {
            // In multiplications for each k: to pack a value costs about as much as these.
            rows * columns + 4 * columns + if self.is_across(0) { 6 * rows } else { 0 }
        };
        let [rows, columns] = (1..=threads).map(sizes).min_by_key(|sizes| longest(*sizes)).unwrap_or([m, n]);
        let down = (0..m).step_by(rows.max(1)).map(|row| row..(row + rows).min(m));
        down.flat_map(|rows| {
            let across = (0..n).step_by(columns).map(|column| column..(column + columns).min(n));
            across.map(move |columns| [rows.clone(), columns])
        })
        .collect()
    }
}

/// Computes the part of a product in these rows and columns.
type Compute<T, O> = unsafe fn(&Product<T>, Target<O>, Range<usize>, Range<usize>);

thread_local! {
    /// Where a thread packs; kept, for a product each time would have to ask for it.
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// The part of `product` in these rows and columns, by the instructions `S`, whose functions for
/// tiles are in `tiles`, by rows and vectors. Block by block of k; in each, some rows; for them
/// panel by panel of columns, which stays near while the rows pass by.
#[inline(always)]
unsafe fn compute<S: InstructionSet, L: Lane, O: Element>(
    product: &Product<L::Value>,
    c: Target<O>,
    rows: Range<usize>,
    columns: Range<usize>,
    tiles: &[&[Tile<O>]],
) {
    let [_, _, k] = product.size();
    let depth = k.div_ceil(L::VALUES);
    // A result that is not float32 cannot wait in memory for the next block.
    let blocks = if size_of::<O>() == size_of::<f32>() { depth.div_ceil(S::DEPTH).max(1) } else { 1 };
    let depth = depth.div_ceil(blocks);
    let width = S::LANES * S::VECTORS;
    let (a, b) = (View::of(&product.a), View::of(&product.b));
    let packs_a = product.packs_a::<L>(NEAR * width);
    let packs_b = L::VALUES > 1 || !L::AS_STORED || b.column != 1 || rows.len() > FEW_ROWS;
    let at_once = ROWS_AT_ONCE * width;
    let panel = pack::panel_lanes(depth);
    let room = if packs_a { at_once.min(rows.len()).div_ceil(PANEL_ROWS) * panel } else { 0 };

    // Taken out and put back: what runs in a closure is not compiled for the instructions.
    let mut scratch = SCRATCH.take();
    let lines = room.div_ceil(LINE) + (depth * width).div_ceil(LINE);
    if scratch.len() < lines {
        scratch.resize(lines, Line::default());
    }
    let packed_a = scratch.as_mut_ptr().cast::<u32>();
    let packed_b = packed_a.wrapping_add(room.next_multiple_of(LINE));
    for first in (0..blocks).map(|block| block * depth * L::VALUES) {
        let k = (depth * L::VALUES).min(k.saturating_sub(first));
        let depth = k.div_ceil(L::VALUES);
        for row in rows.clone().step_by(at_once) {
            let height = at_once.min(rows.end - row);
            let a = a.from(row, first);
            // Rows whose values lie side by side stay rows.
            let in_panels = packs_a && a.column != 1;
            if packs_a {
                // SAFETY: there is room for so many panels, and so for their rows; all else is the
                // caller's promise.
                unsafe {
                    if in_panels {
                        pack::rows::<L>(&a, [height, k], packed_a, panel);
                    } else {
                        pack::in_rows::<L>(&a, [height, k], packed_a);
                    }
                }
            }
            for column in columns.clone().step_by(width) {
                let columns = width.min(columns.end - column);
                let vectors = columns.div_ceil(S::LANES);
                let b = b.from(first, column);
                let b = if packs_b || columns % S::LANES != 0 {
                    // SAFETY: there is room for a panel; all else is the caller's promise.
                    unsafe { pack::columns::<S, L>(&b, [k, columns], packed_b) };
                    Factor { start: packed_b, row: 0, step: vectors * S::LANES * LANE_BYTES }
                } else {
                    Factor { start: b.start.cast(), row: 0, step: b.row * LANE_BYTES }
                };
                for top in (0..height).step_by(PANEL_ROWS) {
                    let a = if in_panels {
                        let start = packed_a.wrapping_add(top / PANEL_ROWS * panel);
                        Factor { start, row: LANE_BYTES, step: LANE_BYTES * PANEL_ROWS }
                    } else if packs_a {
                        Factor { start: packed_a.wrapping_add(top * depth), row: LANE_BYTES * depth, step: LANE_BYTES }
                    } else {
                        let step = if L::VALUES > 1 { LANE_BYTES } else { a.column * LANE_BYTES };
                        Factor { start: a.from(top, 0).start.cast(), row: a.row * size_of::<L::Value>(), step }
                    };
                    let finish = product.finish(c, [row + top, column], columns, first == 0);
                    let tile = tiles[PANEL_ROWS.min(height - top) - 1][vectors - 1];
                    // SAFETY: factors with `depth` lanes of k, and a part of the result; by the
                    // caller's promise they are there.
                    unsafe { tile(depth, a, b, &finish) };
                }
            }
        }
    }
    SCRATCH.set(scratch);
}

impl<T> Product<'_, T> {
    /// m, n and k.
    fn size(&self) -> [usize; 3] {
        [self.a.size[0], self.b.size[1], self.a.size[1]]
    }

    /// Whether the lanes of a tile's rows of `a`, if they are there, are each on a page of its own.
    fn is_across(&self, near: usize) -> bool {
        let ([row, column], [_, _, k]) = (self.a.step, self.size());
        column != 1 && (row != 1 || (column > near && k > FEW))
    }

    /// Whether a tile cannot read its rows of `a` where they are: its lanes must be there, and near
    /// one another.
    fn packs_a<L: Lane>(&self, near: usize) -> bool {
        let is_whole = L::VALUES == 1 || (self.a.step[1] == 1 && self.size()[2].is_multiple_of(L::VALUES));
        !L::AS_STORED || !is_whole || self.is_across(near)
    }

    /// Where the tile at this place goes: in the first block of k onto what is to be added, later
    /// onto what the blocks before left.
    #[inline(always)]
    fn finish<O>(&self, c: Target<O>, [row, column]: [usize; 2], columns: usize, is_first: bool) -> Finish<O> {
        let start = c.start.wrapping_add(row * c.row + column);
        let (onto, onto_row) = match self.onto {
            Onto::Matrix(onto) if is_first => (View::of(&onto).from(row, column).start, onto.step[0]),
            Onto::Nothing if is_first => (null(), 0),
            _ => (start.cast::<f32>().cast_const(), c.row),
        };
        let bias = self.bias.filter(|_| is_first);
        Finish {
            c: start,
            c_row: c.row,
            onto,
            onto_row,
            bias: bias.map_or(null(), |bias| bias[column..].as_ptr()),
            columns,
        }
    }
}
