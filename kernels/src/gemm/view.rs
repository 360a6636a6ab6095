//! Matrices as the loops see them: where they begin, and how far apart their values are.

use super::matrix::Matrix;

/// Where a factor lies.
#[derive(Debug)]
pub struct View<T> {
    /// The first value.
    pub start: *const T,
    /// Values from one row to the next.
    pub row: usize,
    /// Values from one column to the next.
    pub column: usize,
}

impl<T> View<T> {
    /// A matrix where it is.
    pub fn of(matrix: &Matrix<T>) -> Self {
        let [row, column] = matrix.step;
        Self { start: matrix.start(), row, column }
    }

    /// The matrix from a row and a column on.
    pub fn from(&self, row: usize, column: usize) -> Self {
        // Not `add`: of an empty matrix nothing is read, wherever it is.
        Self { start: self.start.wrapping_add(row * self.row + column * self.column), ..*self }
    }
}

/// Where a result is written, by several threads each a part of its own.
#[derive(Debug)]
pub struct Target<O> {
    /// The first value.
    pub start: *mut O,
    /// Values from one row to the next.
    pub row: usize,
}

impl<O> Clone for Target<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Target<O> {}

// SAFETY: made of a matrix that is borrowed to be written; the threads write to disjoint parts.
unsafe impl<O> Sync for Target<O> {}
