//! The microkernel, the innermost loop: a tile of the result in registers.

use super::{instructions::InstructionSet, product::Element};
use crate::simd::prefetch;

/// A factor as a microkernel reads it, in lanes of 4 bytes: a float32, or two bfloat16 that are
/// adjacent in k.
#[derive(Clone, Copy)]
pub struct Factor {
    /// The first lane; need not be aligned.
    pub start: *const u32,
    /// Row stride, in bytes.
    pub row_stride_bytes: usize,
    /// Stride between lanes of k, in bytes.
    pub k_stride_bytes: usize,
}

/// The epilogue of a tile: where it is stored, and what is added to it.
pub struct Epilogue<O> {
    /// The first value of the result, and its row stride in values.
    pub c: *mut O,
    pub c_row_stride: usize,
    /// A matrix to add, or null.
    pub onto: *const f32,
    pub onto_row_stride: usize,
    /// A row to add, or null.
    pub bias: *const f32,
    /// Columns of the result in the tile; the others do not exist.
    pub columns: usize,
}

/// A microkernel for a tile of certain rows and vectors; its first argument is the lanes of k.
///
/// # Safety
/// As [`microkernel`]'s, for these rows and vectors.
pub type Microkernel<O> = unsafe fn(usize, Factor, Factor, &Epilogue<O>);

/// Computes `ROWS` rows of the result, `VECTORS` vectors wide: for each lane of k, an outer product
/// of the rows' lanes of a and the vectors of b.
///
/// # Safety
/// The processor must have the instructions of `S`, and the caller be compiled for them. These must
/// exist:
/// - `depth` lanes in each of `ROWS` rows of `a`, and `depth` times `VECTORS` adjacent vectors in
///   `b`, all readable;
/// - at most `VECTORS` vectors of `epilogue.columns`;
/// - `ROWS` rows of that many values at `epilogue.c`, which nobody else reads or writes meanwhile;
///   as many at `epilogue.onto`, which may be the same, and one row at `epilogue.bias`, both
///   readable unless null. They must be aligned for their types.
#[inline(always)]
pub unsafe fn microkernel<S: InstructionSet, O: Element, const ROWS: usize, const VECTORS: usize>(
    depth: usize,
    a: Factor,
    b: Factor,
    epilogue: &Epilogue<O>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut rows = [a.start; ROWS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = a.start.byte_add(i * a.row_stride_bytes);
            for j in 0..VECTORS {
                prefetch::<1, _>(epilogue.c.wrapping_add(i * epilogue.c_row_stride + j * S::LANES), 1);
            }
        }
        let mut sums = [[S::zero(); VECTORS]; ROWS];
        let mut b_start = b.start;
        for p in 0..depth {
            let mut columns = [S::zero(); VECTORS];
            for (j, columns) in columns.iter_mut().enumerate() {
                *columns = S::load(b_start.add(j * S::LANES).cast());
            }
            b_start = b_start.byte_add(b.k_stride_bytes);
            for (row, sums) in rows.iter().zip(&mut sums) {
                let value = S::repeat(row.byte_add(p * a.k_stride_bytes));
                for (sum, columns) in sums.iter_mut().zip(&columns) {
                    *sum = S::multiply_add(value, *columns, *sum);
                }
            }
        }
        // Separate short loops, which unroll, so that the sums stay in registers.
        if epilogue.columns == VECTORS * S::LANES {
            if !epilogue.bias.is_null() {
                for sums in &mut sums {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = S::add(*sum, S::load(epilogue.bias.add(j * S::LANES)));
                    }
                }
            }
            if !epilogue.onto.is_null() {
                for (i, sums) in sums.iter_mut().enumerate() {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = S::add(*sum, S::load(epilogue.onto.add(i * epilogue.onto_row_stride + j * S::LANES)));
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    O::store::<S>(epilogue.c.add(i * epilogue.c_row_stride + j * S::LANES), *sum);
                }
            }
        } else {
            let mut values = [[0f32; 64]; ROWS];
            for (sums, values) in sums.iter().zip(&mut values) {
                for (j, sum) in sums.iter().enumerate() {
                    S::store(values.as_mut_ptr().add(j * S::LANES), *sum);
                }
            }
            values.iter().enumerate().for_each(|(i, values)| part_of_row(epilogue, i, values));
        }
    }
}

/// The epilogue of row `i` of a tile that is wider than the result.
///
/// # Safety
/// The memory that `epilogue` points to must be valid, as for [`microkernel`].
unsafe fn part_of_row<O: Element>(epilogue: &Epilogue<O>, i: usize, values: &[f32]) {
    for (j, value) in values[..epilogue.columns].iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let mut value = *value;
            if !epilogue.bias.is_null() {
                value += *epilogue.bias.add(j);
            }
            if !epilogue.onto.is_null() {
                value += *epilogue.onto.add(i * epilogue.onto_row_stride + j);
            }
            epilogue.c.add(i * epilogue.c_row_stride + j).write(O::nearest(value));
        }
    }
}
