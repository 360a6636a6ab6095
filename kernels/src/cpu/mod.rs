//! What our kernels for the CPU have in common. Each is one pass over contiguous rows, split over
//! the threads in pieces of fixed size, so that the numbers do not depend on how many threads there
//! are.

pub(crate) mod awake;
pub(crate) mod prefetch;
pub(crate) mod shared;
pub mod tensor;

/// What an operation on the CPU is written with.
pub(crate) mod prelude {
    pub use burn::backend::Flex;
    pub use burn::backend::flex::FlexTensor;
    pub use rayon::prelude::*;

    pub use super::tensor::*;
    pub use crate::fill::{by_rows, unfilled};
    pub use crate::operation::Operation;
    pub use crate::{simd, simd_versions};
}
