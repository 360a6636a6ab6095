//! Products of matrices by the runtime's kernels: one of them chosen by a rule, which costs nothing,
//! or the fastest of all that fit, which are compiled and timed for every shape of matrices.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::DType;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::tensor::CubeTensor;

use super::tensor::unfilled;

static TUNED: AtomicBool = AtomicBool::new(false);

/// Lets products be timed from here on, in the whole process, which takes seconds for each shape
/// but pays where many follow; without it they go by the rule.
pub fn tune() {
    TUNED.store(true, Ordering::Relaxed);
}

/// `a b` for `a` `[m, k]` and `b` `[k, n]` of one type, rounded to `to` from sums in float32.
pub(crate) fn product(a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    let shape = [a.meta.shape()[0], b.meta.shape()[1]];
    let y = unfilled(&a, shape, to);
    let strategy = if TUNED.load(Ordering::Relaxed) { MatmulStrategy::Autotune } else { MatmulStrategy::Cube };
    let Ok(y) = matmul(a, b, Some(y), strategy, to) else {
        unreachable!("burn has a kernel for every product of matrices")
    };
    y
}
