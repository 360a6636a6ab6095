//! A matrix product: its factors, what is added to it, and its division among threads.

use std::ops::Range;

use bytemuck::Pod;
use rayon::prelude::*;

use super::{instructions::InstructionSet, matrix::Matrix, matrix::MatrixMut, pack::LINE, pack::PANEL_ROWS};

/// A type of factors and of results.
pub trait Element: Pod + burn::tensor::Element {
    /// The function for the best instruction set of the processor.
    fn compute<O: Element>() -> Compute<Self, O>;
    /// The nearest value of this type.
    fn nearest(value: f32) -> Self;
    /// Stores a vector; `to` need not be aligned.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`, and the caller be compiled for them; `to`
    /// must have room for `S::LANES` values.
    unsafe fn store<S: InstructionSet>(to: *mut Self, values: S::Vector);
}

/// Computes the part of a product in these rows and columns.
///
/// # Safety
/// The processor must have the instructions that it is compiled for. The sizes in the product must
/// match one another and the result, which must be float32 if it is added to. The rows and columns
/// must lie in the result, and nobody else may read or write them meanwhile.
pub type Compute<T, O> = unsafe fn(&Product<T>, &MatrixMut<O>, Range<usize>, Range<usize>);

/// The threads that compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    One,
    /// All of rayon's, if the product is large enough to be worth waking them.
    All,
}

/// `c = a b`, or `c += a b` if `accumulate`, for a `[m, k]`, b `[k, n]` and c `[m, n]`.
pub fn product<T: Element>(c: MatrixMut, accumulate: bool, a: Matrix<T>, b: Matrix<T>, threads: Threads) {
    let onto = if accumulate { Onto::Result } else { Onto::Nothing };
    Product { a, b, onto, bias: None }.write(c, threads);
}

/// What the epilogue adds to a product.
#[derive(Clone, Copy, Debug)]
pub enum Onto<'a> {
    /// Nothing.
    Nothing,
    /// The previous result, in float32.
    Result,
    /// A matrix `[m, n]` with contiguous rows.
    Matrix(Matrix<'a>),
}

/// A product of `[m, k]` and `[k, n]`.
#[derive(Debug)]
pub struct Product<'a, T> {
    /// `[m, k]`.
    pub a: Matrix<'a, T>,
    /// `[k, n]`.
    pub b: Matrix<'a, T>,
    /// What is added to the product.
    pub onto: Onto<'a>,
    /// A row `[n]` to add to every row.
    pub bias: Option<&'a [f32]>,
}

/// Below this many multiplications a product runs on one thread: waking the others costs more.
const WORTH_SHARING: usize = 48 * 48 * 256;

/// A transposed float32 `a` is read in place, not packed, if its stride in k is at most this many
/// values per column of a panel, or if k is small ([`FEW`]).
pub const NEAR: usize = 4;

/// Largest k that counts as small: see [`NEAR`].
const FEW: usize = 64;

impl<T: Element> Product<'_, T> {
    /// Writes the product to c.
    ///
    /// # Panics
    /// When the sizes of the matrices do not match.
    pub fn write<O: Element>(&self, c: MatrixMut<O>, threads: Threads) {
        let [m, n, k] = self.size();
        let onto_fits = match self.onto {
            Onto::Nothing => true,
            Onto::Result => size_of::<O>() == size_of::<f32>(),
            Onto::Matrix(onto) => onto.size == [m, n] && onto.strides[1] == 1,
        };
        let bias_fits = self.bias.is_none_or(|bias| bias.len() == n);
        let fits = self.b.size[0] == k && c.size == [m, n] && onto_fits && bias_fits;
        assert!(fits, "{:?} times {:?} into {:?}", self.a.size, self.b.size, c.size);
        let (all, compute) = (rayon::current_num_threads(), T::compute::<O>());
        if threads == Threads::One || all == 1 || m * n * k < WORTH_SHARING {
            // SAFETY: the matrices exist and have these sizes, and `compute` was chosen for this
            // processor.
            return unsafe { compute(self, &c, 0..m, 0..n) };
        }
        self.parts(all).into_par_iter().with_max_len(1).for_each(|[rows, columns]| {
            // SAFETY: as above; each part is written by one thread.
            unsafe { compute(self, &c, rows, columns) };
        });
    }

    /// Divides the result among `threads`, as ranges of rows and columns, so that the largest part
    /// takes the least time.
    pub(super) fn parts(&self, threads: usize) -> Vec<[Range<usize>; 2]> {
        let [m, n, _] = self.size();
        let sizes = |down: usize| {
            let across = threads.div_ceil(down);
            [m.div_ceil(down).next_multiple_of(PANEL_ROWS), n.div_ceil(across).next_multiple_of(LINE)]
        };
        let longest = |[rows, columns]: [usize; 2]| {
            // Cost in multiplications per k; packing a value costs about as much as 4 or 6 of them.
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

impl<T> Product<'_, T> {
    /// m, n and k.
    pub(super) fn size(&self) -> [usize; 3] {
        [self.a.size[0], self.b.size[1], self.a.size[1]]
    }

    /// Whether a tile that reads its rows of `a` in place touches a different page of memory for
    /// each lane; not so if lanes are at most `near` values apart.
    pub(super) fn is_across(&self, near: usize) -> bool {
        let ([row_stride, column_stride], [_, _, k]) = (self.a.strides, self.size());
        column_stride != 1 && (row_stride != 1 || (column_stride > near && k > FEW))
    }
}
