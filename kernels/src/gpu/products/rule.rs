//! The fixed rule that chooses one of the runtime's kernels without timing.

use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::matmul::multi_level::components::tile::TileMatmulKind;
use cubek::matmul::multi_level::routines::TileSizeSelection;
use cubek::matmul::multi_level::routines::batch::simple::SimpleArgs;
use cubek::matmul::multi_level::routines::batch::simple_unit::SimpleUnitSelectionArgs;
use cubek::matmul::routine::BlueprintStrategy;
use cubek::std::InputBinding;

use crate::gpu::tensor_cores::has_tensor_cores;

/// `y = a b` by the first kernel that supports these factors, fast ones first.
pub fn multiply(a: &CubeTensor, b: &CubeTensor, y: &CubeTensor) -> Result<(), MatmulSetupError> {
    let units = |tile_size| {
        let strategy = BlueprintStrategy::Inferred(SimpleUnitSelectionArgs { tile_size });
        launch(Strategy::SimpleUnit(strategy), a, b, y)
    };
    let by_tensor_cores = || {
        let simple = SimpleArgs { multi_rows: true, tile_matmul: TileMatmulKind::Mma };
        launch(Strategy::SimpleCyclicMma(BlueprintStrategy::Inferred(simple)), a, b, y)
    };
    let large = || units(TileSizeSelection::MaxTileSize);
    let first = if has_tensor_cores(&a.client) { by_tensor_cores().or_else(|_| large()) } else { large() };
    // With subgroups of 64 units only small tiles fit into 32 KiB of shared memory.
    first.or_else(|_| units(TileSizeSelection::MinTileSize)).or_else(|_| launch(Strategy::Naive, a, b, y))
}

/// Launches one of the runtime's kernels, which returns an error if it does not support the
/// factors.
pub fn launch(strategy: Strategy, a: &CubeTensor, b: &CubeTensor, y: &CubeTensor) -> Result<(), MatmulSetupError> {
    let [of_a, of_b, of_y] = [a, b, y].map(|tensor| dtype_to_storage_type(tensor.dtype));
    let mut types = MatmulElems::from_globals(&MatmulGlobalElems { lhs: of_a, rhs: of_b, out: of_y });
    let [a, b] = [(a, of_a), (b, of_b)].map(|(factor, dtype)| InputBinding::new(factor.clone().binding(), dtype));
    launch_ref(&strategy.into(), &y.client, a, b, y.clone().binding(), &mut types)
}
