//! Conversion between flex's tensors and slices.

use std::ops::Range;

use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::backend::{Flex, flex::FlexTensor, flex::Layout};
use burn::tensor::{BackendPrimitive, kind::Autodiff};
use burn::tensor::{Bytes, DType, Element, FloatDType, IntDType, Shape, Tensor, f16};
use bytemuck::Pod;

use crate::halves::{converted, narrow_bf16, narrow_f16, widen_bf16, widen_f16};

/// The tensor with its values in order and without gaps; copied only if they are not.
pub fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

/// The tensor as CPU kernels take it, without autodiff. It must be on the CPU.
pub fn flex<const D: usize, K>(tensor: Tensor<D, K>) -> FlexTensor
where
    K: Autodiff + BackendPrimitive<Flex, Primitive = FlexTensor>,
{
    tensor.inner().try_into_primitive::<Flex>().unwrap_or_else(|_| panic!("a tensor that is not on the CPU"))
}

/// The inverse of [`flex`], for floats.
pub fn from_flex<const D: usize>(tensor: FlexTensor) -> Tensor<D> {
    Tensor::from_primitive::<Flex>(tensor)
}

/// The sizes of a tensor with `D` dimensions.
pub fn dims<const D: usize>(tensor: &FlexTensor) -> [usize; D] {
    tensor.layout().shape().dims()
}

/// The shape of `x` `[batch, time, width]` with `n` as its width.
pub fn with_width(x: &FlexTensor, n: usize) -> [usize; 3] {
    let [batch, time, _] = dims(x);
    [batch, time, n]
}

/// Whether the tensor is bfloat16. Products with it then multiply bfloat16; float16 is converted to
/// float32 first.
pub fn is_bf16(tensor: &FlexTensor) -> bool {
    tensor.dtype() == DType::BF16
}

/// The tensor contiguous and in bfloat16.
pub fn bfloat16(tensor: FlexTensor) -> FlexTensor {
    contiguous(if is_bf16(&tensor) { tensor } else { cast(tensor, FloatDType::BF16) })
}

/// The tensor contiguous and in float32, in which every kernel computes.
pub fn float32(tensor: FlexTensor) -> FlexTensor {
    let tensor = contiguous(tensor);
    let shape = tensor.layout().shape().clone();
    match tensor.dtype() {
        DType::BF16 => tensor_of(converted(values(&tensor), widen_bf16), shape),
        DType::F16 => tensor_of(converted(values::<f16>(&tensor), widen_f16), shape),
        _ => Flex::float_cast(tensor, FloatDType::F32),
    }
}

/// The tensor in another type.
pub fn cast(tensor: FlexTensor, dtype: FloatDType) -> FlexTensor {
    let tensor = float32(tensor);
    let shape = tensor.layout().shape().clone();
    match dtype {
        FloatDType::BF16 => tensor_of(converted(values(&tensor), narrow_bf16), shape),
        FloatDType::F16 => tensor_of(converted(values(&tensor), narrow_f16), shape),
        _ => Flex::float_cast(tensor, dtype),
    }
}

/// A tensor of these values in `dtype`: a kernel's output has the type of its input.
pub fn tensor_of_type(values: Vec<f32>, shape: impl Into<Shape>, dtype: DType) -> FlexTensor {
    cast(tensor_of(values, shape), dtype.into())
}

/// A tensor that owns `values`.
pub fn tensor_of<T: Element>(values: Vec<T>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape.into()), T::dtype())
}

/// The integer tensor, contiguous and in 32 bits.
pub fn int32(tensor: FlexTensor) -> FlexTensor {
    contiguous(Flex::int_cast(tensor, IntDType::I32))
}

/// The range of a contiguous tensor's values in its storage.
fn value_range(tensor: &FlexTensor) -> Range<usize> {
    let start = tensor.layout().start_offset();
    start..start + tensor.layout().num_elements()
}

/// The values of a contiguous tensor of type `T`.
pub fn values<T: Element + Pod>(tensor: &FlexTensor) -> &[T] {
    &tensor.storage()[value_range(tensor)]
}

/// The values of a contiguous float32 tensor, mutable; copied first if another tensor shares them.
pub fn values_mut(tensor: &mut FlexTensor) -> &mut [f32] {
    let range = value_range(tensor);
    &mut tensor.storage_mut()[range]
}
