//! What our kernels for the CPU have in common. Each is one pass over contiguous rows, split over
//! the threads in pieces of fixed size, so that the numbers do not depend on how many threads there
//! are.

pub(crate) mod awake;
pub(crate) mod prefetch;
pub(crate) mod shared;
pub mod tensor;
