//! Casts on the CPU.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::FloatDType;

use super::Cast;
use crate::cpu::tensor::cast;
use crate::operation::Operation;

impl Operation<Flex, 1> for Cast {
    /// What the gradient becomes again.
    type Kept = FloatDType;

    fn forward(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], FloatDType) {
        let from = x.dtype().into();
        ([cast(x, self.0)], from)
    }

    fn backward(&self, from: FloatDType, dy: FlexTensor) -> [FlexTensor; 1] {
        [cast(dy, from)]
    }
}
