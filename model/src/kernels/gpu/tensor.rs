//! Between burn's GPU tensors and the arguments of our kernels.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

/// The tensor with its values in order and without gaps; a copy only where they are not.
pub fn contiguous(tensor: CubeTensor) -> CubeTensor {
    into_contiguous(tensor)
}

/// The tensor contiguous and in float32.
pub fn float32(tensor: CubeTensor) -> CubeTensor {
    contiguous(if tensor.dtype == DType::F32 { tensor } else { cast(tensor, DType::F32) })
}

/// A tensor on the device of `like` whose values are whatever the memory holds: for a kernel to fill.
pub fn unfilled(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), dtype)
}
