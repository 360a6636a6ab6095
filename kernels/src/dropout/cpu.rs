//! Dropout on the CPU.

use super::{Dropout, mask::DropoutMask, mask::masked};
use crate::cpu::prelude::*;

impl Operation<Flex, 1> for Dropout {
    type Kept = ();

    fn forward(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], ()) {
        ([dropped(x, self.0)], ())
    }

    fn backward(&self, (): (), dy: FlexTensor) -> [FlexTensor; 1] {
        [dropped(dy, self.0)]
    }
}

/// `x` with the masked values 0 and the others scaled up; its own backward, applied to the
/// gradient.
pub fn dropped(x: FlexTensor, mask: DropoutMask) -> FlexTensor {
    let x = contiguous(x);
    new(masked(values(&x), mask), x.layout().shape().clone())
}
