//! Conversion between burn's GPU tensors and our kernels' arguments.

/// A type of numbers as a kernel argument.
pub use burn::backend::cubecl::dtype_to_elem_type as elem;
use burn::tensor::{BackendPrimitive, Bytes, DType, Int, Shape, Tensor, kind::Autodiff};
use burn_cubecl::kernel::cast;
/// The tensor with its values in order and without gaps; copied only if they are not.
pub use burn_cubecl::kernel::into_contiguous as contiguous;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, zeros_client};
use burn_cubecl::{CubeBackend, ops::reshape, tensor::CubeTensor};
use cubecl::prelude::BufferArg;
pub use cubecl::zspace::metadata::Metadata;

/// The tensor as GPU kernels take it, without autodiff. It must be on a GPU.
pub fn cube<const D: usize, K>(tensor: Tensor<D, K>) -> CubeTensor
where
    K: Autodiff + BackendPrimitive<CubeBackend, Primitive = CubeTensor>,
{
    tensor.inner().try_into_primitive::<CubeBackend>().unwrap_or_else(|_| panic!("a tensor that is not on a GPU"))
}

/// The inverse of [`cube`], for floats.
pub fn from_cube<const D: usize>(tensor: CubeTensor) -> Tensor<D> {
    Tensor::from_primitive::<CubeBackend>(tensor)
}

/// Overwrites the first elements of a tensor in place.
pub fn overwrite<const D: usize>(target: &Tensor<D, Int>, values: Vec<i32>) {
    let target = cube(target.clone());
    target.client.write(&target.handle, Bytes::from_elems(values));
}

/// The tensor contiguous and in float32.
pub fn float32(tensor: CubeTensor) -> CubeTensor {
    contiguous(if tensor.dtype == DType::F32 { tensor } else { cast(tensor, DType::F32) })
}

/// An uninitialised tensor on the device of `like`, for a kernel to fill.
pub fn unfilled(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), dtype)
}

/// As [`unfilled`], of the shape and the type of `like`.
pub fn unfilled_like(like: &CubeTensor) -> CubeTensor {
    unfilled(like, like.meta.shape().clone(), like.dtype)
}

/// The contiguous tensor, to change in place: a copy if something else holds it too.
pub fn writable(tensor: CubeTensor) -> CubeTensor {
    if tensor.can_mut() {
        return tensor;
    }
    // As one row, because a copy on CUDA puts gaps between rows.
    let shape = tensor.meta.shape().clone();
    let list = reshape(tensor, [shape.num_elements()].into());
    reshape(list.copy(), shape)
}

/// The output tensor of a kernel that reads `x` as argument number `place`, and the output's
/// argument. The output is `x` itself, in place, if nothing else holds it.
pub fn reuse_or_new(x: &CubeTensor, place: usize) -> (CubeTensor, BufferArg) {
    if x.can_mut() {
        return (x.clone(), x.as_tensor_alias(place).into_buffer_arg());
    }
    let y = unfilled_like(x);
    (y.clone(), y.into_buffer_arg())
}

/// A float32 tensor of zeros on the device of `like`, without the gaps between rows that burn's own
/// tensors have on CUDA.
pub fn zeros(like: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    let shape = shape.into();
    let list = zeros_client(like.client.clone(), like.device.clone(), [shape.num_elements()].into(), DType::F32);
    reshape(list, shape)
}

/// The stride between rows of the last dimension, if it is the same for all; otherwise `None`.
pub fn row_stride(tensor: &CubeTensor) -> Option<usize> {
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let rank = shape.num_dims();
    let evenly = (1..rank.saturating_sub(1)).all(|i| strides[i - 1] == strides[i] * shape[i]);
    (rank >= 2 && strides[rank - 1] == 1 && evenly).then(|| strides[rank - 2])
}

/// The tensor in another shape with the same last dimension; copied only if its rows have no common
/// stride.
pub fn with_rows(tensor: CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    let shape = shape.into();
    let Some(stride) = row_stride(&tensor) else { return reshape(contiguous(tensor), shape) };
    let rank = shape.num_dims();
    let mut strides = vec![1; rank];
    for i in (0..rank - 1).rev() {
        strides[i] = if i == rank - 2 { stride } else { strides[i + 1] * shape[i + 1] };
    }
    let mut tensor = tensor;
    *tensor.meta = Metadata::new(shape, strides);
    tensor
}

/// The product of all dimensions but the last, and the last.
pub fn rows_and_width(tensor: &CubeTensor) -> [usize; 2] {
    let shape = tensor.meta.shape();
    let width = shape.last().copied().unwrap_or(1);
    [shape.num_elements() / width.max(1), width]
}

/// As [`rows_and_width`], with the width in vectors, and the vector width.
pub fn rows_of_vectors(tensor: &CubeTensor) -> [usize; 3] {
    let [rows, width] = rows_and_width(tensor);
    let vector = vector_size(width);
    [rows, width / vector, vector]
}

/// The shape of `x` with `n` as its last dimension.
pub fn with_width(x: &CubeTensor, n: usize) -> Shape {
    let mut shape = x.meta.shape().clone();
    let last = shape.num_dims() - 1;
    shape[last] = n;
    shape
}

/// Vector width for rows of `width` values: no vector spans two rows.
pub fn vector_size(width: usize) -> usize {
    if width.is_multiple_of(4) { 4 } else { 1 }
}
