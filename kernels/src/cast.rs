//! Conversion to another float type.

use burn::tensor::{DType, FloatDType, Tensor};
use burn::{backend::Flex, backend::flex::FlexTensor};

use crate::{cpu::tensor, operation::Operation, operation::apply};

/// `x` in type `to`, which it may already have.
pub fn cast<const D: usize>(x: Tensor<D>, to: FloatDType) -> Tensor<D> {
    if x.dtype() == DType::from(to) {
        return x;
    }
    apply(Cast(to), [x.into_dispatch()])
}

#[derive(Clone, Debug)]
struct Cast(FloatDType);

impl Operation<Flex, 1> for Cast {
    /// The type of `x`, and so of its gradient.
    type Kept = FloatDType;

    fn forward(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], FloatDType) {
        let from = x.dtype().into();
        ([tensor::cast(x, self.0)], from)
    }

    fn backward(&self, from: FloatDType, dy: FlexTensor) -> [FlexTensor; 1] {
        [tensor::cast(dy, from)]
    }
}

#[cfg(feature = "gpu")]
mod gpu {
    use burn_cubecl::{CubeBackend, kernel, tensor::CubeTensor};

    use super::*;

    impl Operation<CubeBackend, 1> for Cast {
        type Kept = FloatDType;

        fn forward(&self, [x]: [CubeTensor; 1]) -> ([CubeTensor; 1], FloatDType) {
            let from = x.dtype.into();
            ([kernel::cast(x, self.0.into())], from)
        }

        fn backward(&self, from: FloatDType, dy: CubeTensor) -> [CubeTensor; 1] {
            [kernel::cast(dy, from.into())]
        }
    }
}
