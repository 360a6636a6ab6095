//! Casts on a GPU.

use burn::tensor::FloatDType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;

use super::Cast;
use crate::operation::Operation;

impl Operation<CubeBackend, 1> for Cast {
    /// What the gradient becomes again.
    type Kept = FloatDType;

    fn forward(&self, [x]: [CubeTensor; 1]) -> ([CubeTensor; 1], FloatDType) {
        let from = x.dtype.into();
        ([cast(x, self.0.into())], from)
    }

    fn backward(&self, from: FloatDType, dy: CubeTensor) -> [CubeTensor; 1] {
        [cast(dy, from.into())]
    }
}
