//! Matrices inside slices, shared and mutable, and raw views for the loops.

use std::marker::PhantomData;

/// A read-only matrix inside a slice.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T = f32> {
    pub(super) values: &'a [T],
    /// Rows and columns.
    pub(super) size: [usize; 2],
    /// Row stride and column stride, in values.
    pub(super) strides: [usize; 2],
}

impl<'a, T> Matrix<'a, T> {
    /// A matrix with `columns` columns that is stored row after row.
    pub fn new(values: &'a [T], columns: usize) -> Self {
        assert_eq!(values.len() % columns, 0, "rows of {columns} values");
        Self { values, size: [values.len() / columns, columns], strides: [columns, 1] }
    }

    /// A matrix at the start of `values`, with contiguous rows that are `row_stride` values apart.
    pub fn strided(values: &'a [T], size: [usize; 2], row_stride: usize) -> Self {
        let length = values.len();
        assert!(is_inside(size, row_stride, length), "{size:?} with rows {row_stride} apart in {length} values");
        Self { values, size, strides: [row_stride, 1] }
    }

    /// Rows and columns.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// The transpose, of the same values.
    pub fn transposed(self) -> Self {
        let ([rows, columns], [row_stride, column_stride]) = (self.size, self.strides);
        Self { size: [columns, rows], strides: [column_stride, row_stride], ..self }
    }

    /// Some of its rows.
    pub fn rows(self, first: usize, rows: usize) -> Self {
        let [all, columns] = self.size;
        assert!(first + rows <= all, "rows {first} to {} of {:?}", first + rows, self.size);
        Self { values: &self.values[first * self.strides[0]..], size: [rows, columns], ..self }
    }

    /// A row, whose values must be contiguous.
    pub fn row(self, row: usize) -> &'a [T] {
        assert!(row < self.size[0] && self.strides[1] == 1, "row {row} of {:?}", self.size);
        &self.values[row * self.strides[0]..][..self.size[1]]
    }
}

/// A mutable matrix with contiguous rows; memory between the rows may belong to others.
#[derive(Debug)]
pub struct MatrixMut<'a, T = f32> {
    pub(super) start: *mut T,
    /// Rows and columns.
    pub(super) size: [usize; 2],
    /// Row stride, in values.
    pub(super) row_stride: usize,
    values: PhantomData<&'a mut [T]>,
}

// SAFETY: nothing safe writes through a shared reference. Only the loops around the microkernel do,
// and their callers promise that each thread writes its own part.
unsafe impl<T: Send> Sync for MatrixMut<'_, T> {}

impl<'a, T> MatrixMut<'a, T> {
    /// A matrix with `columns` columns that is stored row after row.
    pub fn new(values: &'a mut [T], columns: usize) -> Self {
        assert_eq!(values.len() % columns, 0, "rows of {columns} values");
        let size = [values.len() / columns, columns];
        Self { start: values.as_mut_ptr(), size, row_stride: columns, values: PhantomData }
    }

    /// A matrix whose rows are `row_stride` values apart.
    ///
    /// # Safety
    /// Its rows must lie inside writable memory, and nobody else may read or write them as long as
    /// the matrix exists.
    pub unsafe fn from_raw(start: *mut T, size: [usize; 2], row_stride: usize) -> Self {
        Self { start, size, row_stride, values: PhantomData }
    }

    /// Some of its rows.
    pub fn rows(&mut self, first: usize, rows: usize) -> MatrixMut<'_, T> {
        assert!(first + rows <= self.size[0], "rows {first} to {} of {:?}", first + rows, self.size);
        // Not `add`: for zero rows the pointer may be out of bounds; it is never read.
        let start = self.start.wrapping_add(first * self.row_stride);
        MatrixMut { start, size: [rows, self.size[1]], row_stride: self.row_stride, values: PhantomData }
    }

    /// A row.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.size[0], "row {row} of {:?}", self.size);
        // SAFETY: a row of the matrix, which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.row_stride), self.size[1]) }
    }
}

/// Whether a matrix whose rows are `row_stride` values apart lies inside `length` values.
pub fn is_inside([rows, columns]: [usize; 2], row_stride: usize, length: usize) -> bool {
    rows == 0 || (rows - 1) * row_stride + columns <= length
}

/// A factor in memory, unchecked.
#[derive(Debug)]
pub struct View<T> {
    /// The first value.
    pub start: *const T,
    /// Row stride, in values.
    pub row_stride: usize,
    /// Column stride, in values.
    pub column_stride: usize,
}

impl<T> View<T> {
    /// A view of a whole matrix.
    pub fn of(matrix: &Matrix<T>) -> Self {
        let [row_stride, column_stride] = matrix.strides;
        Self { start: matrix.values.as_ptr(), row_stride, column_stride }
    }

    /// The view from a row and a column on.
    pub fn from(&self, row: usize, column: usize) -> Self {
        // Not `add`: for an empty matrix the pointer may be out of bounds; it is never read.
        Self { start: self.start.wrapping_add(row * self.row_stride + column * self.column_stride), ..*self }
    }
}
