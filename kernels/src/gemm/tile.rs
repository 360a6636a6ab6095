//! The innermost loop: a tile of the result in registers.

use super::{instructions::InstructionSet, product::Element};
use crate::simd::prefetch;

/// A factor as a tile reads it, in lanes of 4 bytes: a float32, or two bfloat16 that follow one
/// another in k.
#[derive(Clone, Copy)]
pub struct Factor {
    /// The first lane; need not be aligned.
    pub start: *const u32,
    /// Bytes from a row to the next.
    pub row: usize,
    /// Bytes from a lane of k to the next.
    pub step: usize,
}

/// Where a tile goes, and what is added to it.
pub struct Finish<O> {
    /// The first value, and values from one row to the next.
    pub c: *mut O,
    pub c_row: usize,
    /// A matrix to add, or null.
    pub onto: *const f32,
    pub onto_row: usize,
    /// A row to add, or null.
    pub bias: *const f32,
    /// Columns that there are, of those that the tile has.
    pub columns: usize,
}

/// A function for a tile of certain rows and vectors, given the lanes in k.
///
/// # Safety
/// As [`tile`]'s, for these rows and vectors.
pub type Tile<O> = unsafe fn(usize, Factor, Factor, &Finish<O>);

/// `ROWS` rows of the result, `VECTORS` vectors wide: for each lane of k one vector after another
/// of b, times each row's lane of a.
///
/// # Safety
/// The processor must have the instructions of `S`, and the caller be compiled for them. There must
/// be:
/// - `depth` lanes in each of `ROWS` rows of `a`, and in `b` `depth` times `VECTORS` vectors side
///   by side, all to read;
/// - at most `VECTORS` vectors of `finish.columns`;
/// - `ROWS` rows of so many values at `finish.c`, which nobody else reads or writes meanwhile; as
///   many at `finish.onto`, which may be the same, and one row at `finish.bias`, to read, where
///   these are not null. They must be aligned for their types.
#[inline(always)]
pub unsafe fn tile<S: InstructionSet, O: Element, const ROWS: usize, const VECTORS: usize>(
    depth: usize,
    a: Factor,
    b: Factor,
    finish: &Finish<O>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut rows = [a.start; ROWS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = a.start.byte_add(i * a.row);
            for j in 0..VECTORS {
                prefetch::<1, _>(finish.c.wrapping_add(i * finish.c_row + j * S::LANES), 1);
            }
        }
        let mut sums = [[S::zero(); VECTORS]; ROWS];
        let mut b_start = b.start;
        for p in 0..depth {
            let mut columns = [S::zero(); VECTORS];
            for (j, columns) in columns.iter_mut().enumerate() {
                *columns = S::load(b_start.add(j * S::LANES).cast());
            }
            b_start = b_start.byte_add(b.step);
            for (row, sums) in rows.iter().zip(&mut sums) {
                let value = S::repeat(row.byte_add(p * a.step));
                for (sum, columns) in sums.iter_mut().zip(&columns) {
                    *sum = S::multiply_add(value, *columns, *sum);
                }
            }
        }
        // Short loops each, which unroll: the sums then never leave their registers on the way.
        if finish.columns == VECTORS * S::LANES {
            if !finish.bias.is_null() {
                for sums in &mut sums {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = S::add(*sum, S::load(finish.bias.add(j * S::LANES)));
                    }
                }
            }
            if !finish.onto.is_null() {
                for (i, sums) in sums.iter_mut().enumerate() {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = S::add(*sum, S::load(finish.onto.add(i * finish.onto_row + j * S::LANES)));
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    O::store::<S>(finish.c.add(i * finish.c_row + j * S::LANES), *sum);
                }
            }
        } else {
            let mut values = [[0f32; 64]; ROWS];
            for (sums, values) in sums.iter().zip(&mut values) {
                for (j, sum) in sums.iter().enumerate() {
                    S::store(values.as_mut_ptr().add(j * S::LANES), *sum);
                }
            }
            values.iter().enumerate().for_each(|(i, values)| part_of_row(finish, i, values));
        }
    }
}

/// Finishes row `i` of a tile that is wider than the result.
///
/// # Safety
/// What `finish` names must be there, as for [`tile`].
unsafe fn part_of_row<O: Element>(finish: &Finish<O>, i: usize, values: &[f32]) {
    for (j, value) in values[..finish.columns].iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let mut value = *value;
            if !finish.bias.is_null() {
                value += *finish.bias.add(j);
            }
            if !finish.onto.is_null() {
                value += *finish.onto.add(i * finish.onto_row + j);
            }
            finish.c.add(i * finish.c_row + j).write(O::nearest(value));
        }
    }
}
