//! Products of matrices: on tensor cores by a kernel of ours where the factors fit it, else by the
//! runtime's kernels, one of them chosen by a rule, which costs nothing, or, on devices without
//! tensor cores, the fastest of all that fit, which are compiled and timed for every shape of
//! matrices.

mod few_rows;
#[cfg(all(test, feature = "autodiff"))]
mod tests;
mod tiled;
#[cfg(feature = "cuda")]
mod warpgroups;

use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Device, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::matmul::multi_level::components::tile::TileMatmulKind;
use cubek::matmul::multi_level::routines::TileSizeSelection;
use cubek::matmul::multi_level::routines::batch::simple::SimpleArgs;
use cubek::matmul::multi_level::routines::batch::simple_unit::SimpleUnitSelectionArgs;
use cubek::matmul::routine::BlueprintStrategy;
use cubek::std::InputBinding;

use super::tensor::{contiguous, cube, unfilled, with_width};

static TUNED: AtomicBool = AtomicBool::new(false);

/// Lets products be timed from here on, in the whole process, which takes seconds for each shape
/// but pays where many follow; without it they go by the rule. Returns whether it changes anything
/// on `device`: with tensor cores there are so many kernels that a text's first step would take
/// minutes (on an H200 a second for each of some twenty, of fifteen shapes), and the rule's are not
/// far behind.
pub fn tune(device: &Device) -> bool {
    let client = (!crate::is_cpu(device)).then(|| cube(Tensor::<1>::zeros([1], &device.clone().inner())).client);
    !TUNED.swap(true, Ordering::Relaxed) && client.is_some_and(|client| !names_tensor_cores(&client))
}

/// Whether the device has tensor cores.
pub fn names_tensor_cores(client: &Client) -> bool {
    !client.properties().features.matmul.cmma.is_empty()
}

/// `a b` for `a` `[m, k]` and `b` `[k, n]` of one type, rounded to `to` from sums in float32.
pub(crate) fn product(a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    contiguous(spaced_product(a, b, to))
}

/// `y + a b` where there is a `y` `[m, n]` of type `to`, else as [`product`].
pub(crate) fn product_onto(y: Option<CubeTensor>, a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    let Some(y) = y else { return product(a, b, to) };
    #[cfg(feature = "cuda")]
    if let Some(plan) = warpgroups::Plan::of_sum(&y, &a, &b) {
        return plan.add(y, &a, &b);
    }
    CubeBackend::float_add(product(a, b, to), y)
}

/// As [`product`]; where `n` is no multiple of 8 there may be gaps between rows, so that tensor
/// cores can take the result as a factor.
pub(crate) fn spaced_product(a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    if names_tensor_cores(&a.client)
        && let Some(y) = few_rows::product(&a, &b, to)
            .or_else(|| by_warpgroups(&a, &b, None, to))
            .or_else(|| tiled::product(&a, &b, to))
    {
        return y;
    }
    by_runtime(a, b, to)
}

/// `a b` for `a` `[count, m, k]` and `b` `[count, k, n]` of one type, each by itself, rounded to `to` from
/// sums in float32.
pub(crate) fn batched_product(a: &CubeTensor, b: &CubeTensor, to: DType) -> CubeTensor {
    let ours = || by_warpgroups(a, b, None, to).or_else(|| tiled::product(a, b, to)).map(contiguous);
    let ours = if names_tensor_cores(&a.client) { ours() } else { None };
    ours.unwrap_or_else(|| by_runtime(a.clone(), b.clone(), to))
}

/// `a b` by a kernel of the runtime's, for factors of two or more dimensions.
fn by_runtime(a: CubeTensor, b: CubeTensor, to: DType) -> CubeTensor {
    let y = unfilled(&a, with_width(&a, b.meta.shape()[b.meta.shape().num_dims() - 1]), to);
    let done = if TUNED.load(Ordering::Relaxed) && !names_tensor_cores(&a.client) {
        matmul(a, b, Some(y.clone()), MatmulStrategy::Autotune, to).map(drop)
    } else {
        by_rule(&a, &b, &y)
    };
    done.unwrap_or_else(|error| unreachable!("the runtime has a kernel for every product of matrices: {error:?}"));
    y
}

/// `a b + bias` for `bias` `[n]` in float32, as [`product`] gives it, where one kernel does both.
pub(crate) fn biased_product(a: &CubeTensor, b: &CubeTensor, bias: &CubeTensor, to: DType) -> Option<CubeTensor> {
    by_warpgroups(a, b, Some(bias), to).map(contiguous)
}

/// By the tensor cores' own way on Hopper.
fn by_warpgroups(_a: &CubeTensor, _b: &CubeTensor, _bias: Option<&CubeTensor>, _to: DType) -> Option<CubeTensor> {
    #[cfg(feature = "cuda")]
    return warpgroups::product(_a, _b, _bias, _to);
    #[cfg(not(feature = "cuda"))]
    None
}

/// By the first of the runtime's kernels that takes these factors, fast ones first.
fn by_rule(a: &CubeTensor, b: &CubeTensor, y: &CubeTensor) -> Result<(), MatmulSetupError> {
    let units = |tile_size| {
        let strategy = BlueprintStrategy::Inferred(SimpleUnitSelectionArgs { tile_size });
        launch(Strategy::SimpleUnit(strategy), a, b, y)
    };
    let by_tensor_cores = || {
        let simple = SimpleArgs { multi_rows: true, tile_matmul: TileMatmulKind::Mma };
        launch(Strategy::SimpleCyclicMma(BlueprintStrategy::Inferred(simple)), a, b, y)
    };
    let large = || units(TileSizeSelection::MaxTileSize);
    let first = if names_tensor_cores(&a.client) { by_tensor_cores().or_else(|_| large()) } else { large() };
    // The tiles of subgroups of 64 units do not fit into 32 KiB of shared memory, but for small ones.
    first.or_else(|_| units(TileSizeSelection::MinTileSize)).or_else(|_| launch(Strategy::Naive, a, b, y))
}

fn launch(strategy: Strategy, a: &CubeTensor, b: &CubeTensor, y: &CubeTensor) -> Result<(), MatmulSetupError> {
    let [of_a, of_b, of_y] = [a, b, y].map(|tensor| dtype_to_storage_type(tensor.dtype));
    let mut types = MatmulElems::from_globals(&MatmulGlobalElems { lhs: of_a, rhs: of_b, out: of_y });
    let [a, b] = [(a, of_a), (b, of_b)].map(|(factor, dtype)| InputBinding::new(factor.clone().binding(), dtype));
    launch_ref(&strategy.into(), &y.client, a, b, y.clone().binding(), &mut types)
}
