//! What the kernels of training on a GPU have in common: tensors as kernels take them, and sums over a cube.
//!
//! A kernel of ours runs in cubes (CUDA's blocks) of units (threads). Sums go over a tree whose shape the size of the cube fixes, so
//! that the same device gives the same bits.

use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::*;

/// Units of a cube that sums; every device has as many.
pub(crate) const UNITS: u32 = 256;

/// The tensor as our kernels take it. It must be on a GPU, without automatic differentiation.
pub(crate) fn cube<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
    match tensor.into_dispatch().kind {
        DispatchTensorKind::Cube(BackendTensor::Float(tensor)) => tensor,
        _ => unreachable!("the tensors of one model are on one device"),
    }
}

/// The way back from [`cube`].
pub(crate) fn tensor<const D: usize>(tensor: CubeTensor) -> Tensor<D> {
    let kind = DispatchTensorKind::Cube(BackendTensor::Float(tensor));
    Tensor::from_dispatch(DispatchTensor { kind, autodiff: DispatchAutodiffContext::Disabled })
}

/// How kernels call a type of floating-point numbers.
pub(crate) fn element(dtype: DType) -> ElemType {
    ElemType::Float(match dtype {
        DType::F32 => FloatKind::F32,
        DType::F16 => FloatKind::F16,
        DType::BF16 => FloatKind::BF16,
        other => unreachable!("no model computes in {other:?}"),
    })
}

/// The sum of each unit's `value`, for all units of a cube of `units`, a power of two.
#[cube]
pub(crate) fn cube_sum(value: f32, #[comptime] units: u32) -> f32 {
    let mut values = Shared::<[f32]>::new_slice(units as usize);
    values[UNIT_POS as usize] = value;
    sync_cube();
    let mut rest = (units / 2).runtime();
    while rest > 0 {
        if UNIT_POS < rest {
            values[UNIT_POS as usize] += values[(UNIT_POS + rest) as usize];
        }
        sync_cube();
        rest /= 2;
    }
    values[0]
}

/// The largest of each unit's `value`, for all units of a cube of `units`, a power of two.
#[cube]
pub(crate) fn cube_max(value: f32, #[comptime] units: u32) -> f32 {
    let mut values = Shared::<[f32]>::new_slice(units as usize);
    values[UNIT_POS as usize] = value;
    sync_cube();
    let mut rest = (units / 2).runtime();
    while rest > 0 {
        if UNIT_POS < rest {
            let other = values[(UNIT_POS + rest) as usize];
            if other > values[UNIT_POS as usize] {
                values[UNIT_POS as usize] = other;
            }
        }
        sync_cube();
        rest /= 2;
    }
    values[0]
}
