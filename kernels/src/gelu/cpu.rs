//! GELU on the CPU.

use super::{A, B, Gelu};
use crate::{cpu::prelude::*, halves::in_float32};

/// Values per task.
const CHUNK: usize = 8192;

impl Operation<Flex, 1> for Gelu {
    type Kept = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1]) -> ([FlexTensor; 1], FlexTensor) {
        ([gelu(x.clone())], x)
    }

    fn backward(&self, x: FlexTensor, dy: FlexTensor) -> [FlexTensor; 1] {
        [gelu_backward(x, dy)]
    }
}

/// Elementwise GELU.
pub fn gelu(x: FlexTensor) -> FlexTensor {
    of_each([x], |[x], y| forward_chunk(x, y))
}

/// Gradient with respect to `x`, given that of the output.
pub fn gelu_backward(x: FlexTensor, dy: FlexTensor) -> FlexTensor {
    of_each([x, dy], |[x, dy], dx| backward_chunk(x, dy, dx))
}

/// Applies `f` elementwise, in float32, to tensors of one shape; the result has the type of the
/// first.
fn of_each<const N: usize>(inputs: [FlexTensor; N], f: impl Fn([&[f32]; N], &mut [f32]) + Sync) -> FlexTensor {
    let (dtype, shape) = (inputs[0].dtype(), inputs[0].layout().shape().clone());
    if is_bf16(&inputs[0]) {
        return tensor_of(in_float32(inputs.map(bfloat16).each_ref().map(values), f), shape);
    }
    let inputs = inputs.map(float32);
    tensor_of_type(by_rows(CHUNK, inputs.each_ref().map(|x| (values(x), 1)), 1, f), shape, dtype)
}

simd_versions! {
    fn forward_chunk(x: &[f32], y: &mut [f32]) {
        for (x, y) in x.iter().zip(y) {
            let u = A * x * (B * x).mul_add(*x, 1.0);
            *y = x / (1.0 + simd::exp(-u));
        }
    }

    fn backward_chunk(x: &[f32], dy: &[f32], dx: &mut [f32]) {
        for ((x, dy), dx) in x.iter().zip(dy).zip(dx) {
            let u = A * x * (B * x).mul_add(*x, 1.0);
            let sigmoid = 1.0 / (1.0 + simd::exp(-u));
            let du = A * (3.0 * B * x).mul_add(*x, 1.0);
            *dx = dy * sigmoid * (x * (1.0 - sigmoid)).mul_add(du, 1.0);
        }
    }
}
