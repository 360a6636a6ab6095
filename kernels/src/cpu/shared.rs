//! A slice that several tasks write at once, each in places of its own that lie between those of
//! others.

use std::marker::PhantomData;

use crate::{gemm::MatrixMut, gemm::matrix::is_inside};

/// See the module.
#[derive(Debug)]
pub struct Shared<'a, T> {
    start: *mut T,
    length: usize,
    values: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

// SAFETY: a slice that is borrowed to be written, and by the promises below no place of it by two
// tasks.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Of all of these.
    pub fn new(values: &'a mut [T]) -> Self {
        Self { start: values.as_mut_ptr(), length: values.len(), values: PhantomData }
    }

    /// Some that lie side by side.
    ///
    /// # Safety
    /// Nobody else may read or write them as long as they are borrowed.
    pub unsafe fn piece(self, first: usize, length: usize) -> &'a mut [T] {
        assert!(first + length <= self.length, "{length} values from number {first} on of {}", self.length);
        // SAFETY: inside the slice, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(first), length) }
    }

    /// The matrix of this size that begins at value number `first`, with `step` values from one row
    /// to the next.
    ///
    /// # Safety
    /// Nobody else may read or write its rows as long as it is there.
    pub unsafe fn matrix(self, first: usize, size: [usize; 2], step: usize) -> MatrixMut<'a, T> {
        assert!(first <= self.length && is_inside(size, step, self.length - first), "{size:?} of {}", self.length);
        // SAFETY: inside the slice, and the caller's promise.
        unsafe { MatrixMut::from_raw(self.start.add(first), size, step) }
    }
}
