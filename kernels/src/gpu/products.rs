//! Products of matrices by the runtime's kernels: one of them chosen by a rule, which costs nothing,
//! or the fastest of all that fit, which are compiled and timed for every shape of matrices.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::{DType, Device, Tensor};
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;

use super::tensor::{cube, unfilled};

static TUNED: AtomicBool = AtomicBool::new(false);

/// Lets products be timed from here on, in the whole process, which takes seconds for each shape
/// but pays where many follow; without it they go by the rule. Returns whether it changes anything
/// on `device`.
pub fn tune(device: &Device) -> bool {
    let client = (!crate::is_cpu(device)).then(|| cube(Tensor::<1>::zeros([1], &device.clone().inner())).client);
    !TUNED.swap(true, Ordering::Relaxed) && client.is_some_and(|client| !names_tensor_cores(&client))
}

/// Whether the device has tensor cores: then there are so many kernels, and shapes that the rule's
/// one does not take, that products are always timed.
pub fn names_tensor_cores(client: &Client) -> bool {
    !client.properties().features.matmul.cmma.is_empty()
}

/// `a b` for `a` `[m, k]` and `b` `[k, n]` of one type, rounded to `to` from sums in float32.
pub(crate) fn product(a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    let shape = [a.meta.shape()[0], b.meta.shape()[1]];
    let y = unfilled(&a, shape, to);
    let is_timed = TUNED.load(Ordering::Relaxed) || names_tensor_cores(&a.client);
    let strategy = if is_timed { MatmulStrategy::Autotune } else { MatmulStrategy::Cube };
    let Ok(y) = matmul(a, b, Some(y), strategy, to) else {
        unreachable!("burn has a kernel for every product of matrices")
    };
    y
}
