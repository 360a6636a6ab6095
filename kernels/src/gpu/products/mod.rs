//! Matrix products: on tensor cores by our kernels where they support the factors, otherwise by the
//! runtime's kernels. Of those one is chosen by a fixed rule, which costs nothing, or, on devices
//! without tensor cores, by autotuning: all that fit are compiled and timed once.

mod few_rows;
mod rule;
#[cfg(all(test, feature = "autodiff"))]
mod tests;
mod tiled;
mod timed;
#[cfg(feature = "cuda")]
mod warpgroups;

use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Device, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::tensor::{contiguous, cube, rows_and_width, unfilled, with_width};
use super::tensor_cores::has_tensor_cores;
pub use timed::keep_in;

static TUNED: AtomicBool = AtomicBool::new(false);

/// Turns on autotuning of products in the whole process. It takes seconds for each shape but pays
/// off over many steps; without it the rule decides. Returns whether this changes anything on
/// `device`. On tensor cores there is no autotuning: with so many kernels a text's first step would
/// take minutes (on an H200 a second for each of some twenty kernels and fifteen shapes), and the
/// rule's are not far behind.
pub fn tune(device: &Device) -> bool {
    let client = (!crate::is_cpu(device)).then(|| cube(Tensor::<1>::zeros([1], &device.clone().inner())).client);
    !TUNED.swap(true, Ordering::Relaxed) && client.is_some_and(|client| !has_tensor_cores(&client))
}

/// `a b` for `a` `[m, k]` and `b` `[k, n]` of one type, rounded to `to` from sums in float32.
pub(crate) fn product(a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    contiguous(spaced_product(a, b, to))
}

/// `y + a b` if there is a `y` `[m, n]` of type `to`, otherwise as [`product`].
pub(crate) fn product_onto(y: Option<CubeTensor>, a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    let Some(y) = y else { return product(a, b, to) };
    #[cfg(feature = "cuda")]
    if let Some(plan) = warpgroups::Plan::of_sum(&y, &a, &b) {
        return plan.add(y, &a, &b);
    }
    CubeBackend::float_add(product(a, b, to), y)
}

/// As [`product`]; if `n` is not a multiple of 8, rows may be padded, so that tensor cores can take
/// the result as a factor.
pub(crate) fn spaced_product(a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    if has_tensor_cores(&a.client)
        && let Some(y) = few_rows::product(&a, &b, to)
            .or_else(|| by_warpgroups(&a, &b, None, to))
            .or_else(|| tiled::product(&a, &b, to))
    {
        return y;
    }
    by_runtime(a, b, to)
}

/// The batched product `a b` for `a` `[count, m, k]` and `b` `[count, k, n]` of one type, rounded
/// to `to` from sums in float32.
pub(crate) fn batched_product(a: &CubeTensor, b: &CubeTensor, to: DType) -> CubeTensor {
    let ours = || by_warpgroups(a, b, None, to).or_else(|| tiled::product(a, b, to)).map(contiguous);
    let ours = if has_tensor_cores(&a.client) { ours() } else { None };
    ours.unwrap_or_else(|| by_runtime(a.clone(), b.clone(), to))
}

/// `a b` by one of the runtime's kernels, for factors of two or more dimensions.
fn by_runtime(a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    let [_, n] = rows_and_width(&b);
    let y = unfilled(&a, with_width(&a, n), to);
    let done = if TUNED.load(Ordering::Relaxed) && !has_tensor_cores(&a.client) {
        timed::multiply(&a, &b, &y)
    } else {
        rule::multiply(&a, &b, &y)
    };
    done.unwrap_or_else(|error| unreachable!("the runtime has a kernel for every product of matrices: {error:?}"));
    y
}

/// `a b + bias` for `bias` `[n]` in float32, as [`product`] gives it, if one kernel can do both.
pub(crate) fn biased_product(a: &CubeTensor, b: &CubeTensor, bias: &CubeTensor, to: DType) -> Option<CubeTensor> {
    by_warpgroups(a, b, Some(bias), to).map(contiguous)
}

/// By warpgroup instructions on Hopper.
fn by_warpgroups(_a: &CubeTensor, _b: &CubeTensor, _bias: Option<&CubeTensor>, _to: DType) -> Option<CubeTensor> {
    #[cfg(feature = "cuda")]
    return warpgroups::product(_a, _b, _bias, _to);
    #[cfg(not(feature = "cuda"))]
    None
}
