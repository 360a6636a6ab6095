//! Shared code of our CPU kernels. Each kernel is one pass over contiguous rows, split into tasks
//! of fixed size, so that results do not depend on the number of threads.

pub(crate) mod awake;
pub(crate) mod prefetch;
pub(crate) mod shared;
pub mod tensor;

/// Imports for an operation on the CPU.
pub(crate) mod prelude {
    pub use burn::backend::Flex;
    pub use burn::backend::flex::FlexTensor;
    pub use rayon::prelude::*;

    pub use super::tensor::*;
    pub use crate::fill::{by_rows, unfilled};
    pub use crate::operation::Operation;
    pub use crate::{simd, simd_versions};
}
