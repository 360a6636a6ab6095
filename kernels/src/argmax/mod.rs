//! The largest value of each row, on a GPU: decoding on the CPU has the logits at hand.

mod gpu;
#[cfg(all(test, feature = "autodiff"))]
mod gpu_tests;

use burn::tensor::Tensor;

use crate::gpu::tensor::{cube, from_cube};

/// For each row of `logits` `[rows, vocab]`, on a GPU, the id of its largest value (of equal ones
/// the lowest), that value, and the logarithm of the sum of the exponentials of all: `[rows, 3]`,
/// which is all that greedy decoding reads back.
pub fn argmax(logits: Tensor<2>) -> Tensor<2> {
    from_cube(gpu::argmax(cube(logits)))
}
