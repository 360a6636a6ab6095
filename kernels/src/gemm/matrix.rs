//! Matrices inside slices, to read and to write, and as the loops see them.

use std::marker::PhantomData;

/// A matrix inside a slice, to read.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T = f32> {
    pub(super) values: &'a [T],
    /// Rows and columns.
    pub(super) size: [usize; 2],
    /// Values from one row to the next, and from one column to the next.
    pub(super) step: [usize; 2],
}

impl<'a, T> Matrix<'a, T> {
    /// A matrix with `columns` columns that is stored row after row.
    pub fn new(values: &'a [T], columns: usize) -> Self {
        assert_eq!(values.len() % columns, 0, "rows of {columns} values");
        Self { values, size: [values.len() / columns, columns], step: [columns, 1] }
    }

    /// A matrix that begins where `values` do, with `step` values from one row to the next; a row's
    /// stand side by side.
    pub fn strided(values: &'a [T], size: [usize; 2], step: usize) -> Self {
        assert!(is_inside(size, step, values.len()), "{size:?} with rows {step} apart in {} values", values.len());
        Self { values, size, step: [step, 1] }
    }

    /// Rows and columns.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// The same values with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        let ([rows, columns], [row, column]) = (self.size, self.step);
        Self { size: [columns, rows], step: [column, row], ..self }
    }

    /// Some of its rows.
    pub fn rows(self, first: usize, rows: usize) -> Self {
        let [all, columns] = self.size;
        assert!(first + rows <= all, "rows {first} to {} of {:?}", first + rows, self.size);
        Self { values: &self.values[first * self.step[0]..], size: [rows, columns], ..self }
    }

    /// A row whose values stand side by side.
    pub fn row(self, row: usize) -> &'a [T] {
        assert!(row < self.size[0] && self.step[1] == 1, "row {row} of {:?}", self.size);
        &self.values[row * self.step[0]..][..self.size[1]]
    }
}

/// A matrix to write, whose rows' values stand side by side; between the rows may stand what
/// belongs to others.
#[derive(Debug)]
pub struct MatrixMut<'a, T = f32> {
    pub(super) start: *mut T,
    /// Rows and columns.
    pub(super) size: [usize; 2],
    /// Values from one row to the next.
    pub(super) step: usize,
    values: PhantomData<&'a mut [T]>,
}

// SAFETY: nothing safe writes through a shared reference. Those who do, the loops around a tile,
// have their callers promise that each thread writes a part of its own.
unsafe impl<T: Send> Sync for MatrixMut<'_, T> {}

impl<'a, T> MatrixMut<'a, T> {
    /// A matrix with `columns` columns that is stored row after row.
    pub fn new(values: &'a mut [T], columns: usize) -> Self {
        assert_eq!(values.len() % columns, 0, "rows of {columns} values");
        Self { start: values.as_mut_ptr(), size: [values.len() / columns, columns], step: columns, values: PhantomData }
    }

    /// A matrix with `step` values from one row to the next.
    ///
    /// # Safety
    /// Its rows must lie inside memory that may be written, and nobody else may read or write them
    /// as long as the matrix is there.
    pub unsafe fn from_raw(start: *mut T, size: [usize; 2], step: usize) -> Self {
        Self { start, size, step, values: PhantomData }
    }

    /// Some of its rows.
    pub fn rows(&mut self, first: usize, rows: usize) -> MatrixMut<'_, T> {
        assert!(first + rows <= self.size[0], "rows {first} to {} of {:?}", first + rows, self.size);
        // Not `add`: of no rows nothing is read, wherever they are.
        let start = self.start.wrapping_add(first * self.step);
        MatrixMut { start, size: [rows, self.size[1]], step: self.step, values: PhantomData }
    }

    /// A row.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.size[0], "row {row} of {:?}", self.size);
        // SAFETY: a row of the matrix, which is borrowed to be written.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.step), self.size[1]) }
    }
}

/// Whether a matrix with `step` values from one row to the next lies inside `length` values.
pub fn is_inside([rows, columns]: [usize; 2], step: usize, length: usize) -> bool {
    rows == 0 || (rows - 1) * step + columns <= length
}

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
        Self { start: matrix.values.as_ptr(), row, column }
    }

    /// The matrix from a row and a column on.
    pub fn from(&self, row: usize, column: usize) -> Self {
        // Not `add`: of an empty matrix nothing is read, wherever it is.
        Self { start: self.start.wrapping_add(row * self.row + column * self.column), ..*self }
    }
}
