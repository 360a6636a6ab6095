//! A slice that several tasks write at the same time, each to its own elements, which may be
//! interleaved with those of others.

use std::marker::PhantomData;

use crate::{gemm::MatrixMut, gemm::matrix::is_inside};

/// A slice of which each task writes elements of its own.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    start: *mut f32,
    length: usize,
    values: PhantomData<&'a mut [f32]>,
}

// SAFETY: a mutably borrowed slice, of which by the promises below no element is accessed by two
// tasks.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// Shares all of `values`.
    pub fn new(values: &'a mut [f32]) -> Self {
        Self { start: values.as_mut_ptr(), length: values.len(), values: PhantomData }
    }

    /// `length` adjacent values from number `first`.
    ///
    /// # Safety
    /// Nobody else may read or write them as long as they are borrowed.
    pub unsafe fn piece(self, first: usize, length: usize) -> &'a mut [f32] {
        assert!(first + length <= self.length, "{length} values from number {first} on of {}", self.length);
        // SAFETY: inside the slice, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(first), length) }
    }

    /// The matrix of this size at value number `first`, with rows `row_stride` values apart.
    ///
    /// # Safety
    /// Nobody else may read or write its rows as long as it exists.
    pub unsafe fn matrix(self, first: usize, size: [usize; 2], row_stride: usize) -> MatrixMut<'a> {
        let length = self.length;
        assert!(first <= length && is_inside(size, row_stride, length - first), "{size:?} of {length}");
        // SAFETY: inside the slice, and the caller's promise.
        unsafe { MatrixMut::from_raw(self.start.add(first), size, row_stride) }
    }
}
