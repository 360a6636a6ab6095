//! Products of matrices by the runtime's kernels: one of them chosen by a rule, which costs nothing,
//! or the fastest of all that fit, which are compiled and timed for every shape of matrices.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::{DType, Device};
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::tensor::CubeTensor;
use ember_host::panics::quietly;

use super::{bandwidth::measure_within_memory, tensor::unfilled};

static TUNED: AtomicBool = AtomicBool::new(false);

/// Lets products on `device`, a GPU, and on all others be timed from here on, which takes seconds
/// for each shape but pays where many follow; without it they go by the rule.
pub fn tune(device: &Device) {
    // Where not even that works, the first product says so.
    let _ = quietly(|| measure_within_memory(device));
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
