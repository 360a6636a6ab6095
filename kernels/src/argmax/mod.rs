//! The largest value of each row, on a GPU: on the CPU, decoding reads the logits directly.

mod gpu;
#[cfg(all(test, feature = "autodiff"))]
mod gpu_tests;

use burn::tensor::Tensor;

use crate::gpu::tensor::{cube, from_cube};

/// For each row of `logits` `[rows, vocab]`, on a GPU: the id of its largest value (the lowest id
/// among equal ones), that value, and the log-sum-exp of the row, as `[rows, 3]`. Greedy decoding
/// reads back nothing else.
pub fn argmax(logits: Tensor<2>) -> Tensor<2> {
    from_cube(gpu::argmax(cube(logits)))
}
