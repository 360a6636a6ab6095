//! Products with the weights, with the elementwise work before and after each product fused into
//! one kernel.
//!
//! For `gelu(x W + b)` the product `x W` is kept, and both GELU and its gradient add the bias
//! themselves, so that neither the bias nor its gradient needs a separate pass over the widest
//! tensor of a block.
//!
//! Products take matrices, with `[batch, time]` as one dimension, so that few shapes need
//! autotuning.

use super::{Linear, LinearGelu, LinearOnto, Unembed};
use crate::dropout::gpu::{Mask, dropped, mask_launch};
use crate::gelu::gpu::{gelu, gelu_derivative};
use crate::gpu::products::{biased_product, product, product_onto, spaced_product};
use crate::gpu::sum::{Groups, LANES, column_sums, first_row, own_column, sum_groups, write_column_sum};
use crate::{DropoutMask, gpu::prelude::*};

impl Operation<CubeBackend, 3> for Linear {
    type Kept = [CubeTensor; 2];

    fn forward(&self, [x, weight, bias]: [CubeTensor; 3]) -> ([CubeTensor; 1], Self::Kept) {
        ([linear(x.clone(), weight.clone(), Some(bias))], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: CubeTensor) -> [CubeTensor; 3] {
        let dy = contiguous(cast(dy, x.dtype));
        let dbias = column_sums(dy.clone());
        let [dx, dweight] = product_backward(x, weight, dy);
        [dx, dweight, dbias]
    }
}

impl Operation<CubeBackend, 2> for Linear {
    type Kept = [CubeTensor; 2];

    fn forward(&self, [x, weight]: [CubeTensor; 2]) -> ([CubeTensor; 1], Self::Kept) {
        ([linear(x.clone(), weight.clone(), None)], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: CubeTensor) -> [CubeTensor; 2] {
        product_backward(x, weight, dy)
    }
}

impl Operation<CubeBackend, 3> for LinearGelu {
    /// The inputs, and `x W`.
    type Kept = [CubeTensor; 4];

    fn forward(&self, [x, weight, bias]: [CubeTensor; 3]) -> ([CubeTensor; 1], Self::Kept) {
        let h = linear(x.clone(), weight.clone(), None);
        ([gelu_of_biased(h.clone(), bias.clone())], [x, weight, bias, h])
    }

    fn backward(&self, [x, weight, bias, h]: Self::Kept, dy: CubeTensor) -> [CubeTensor; 3] {
        let dy = contiguous(cast(dy, h.dtype));
        let (dh, dbias) = biased_gelu_backward(h, float32(bias), dy);
        let [dx, dweight] = product_backward(x, weight, dh);
        [dx, dweight, dbias]
    }
}

impl Operation<CubeBackend, 4> for LinearOnto {
    type Kept = [CubeTensor; 2];

    fn forward(&self, [residual, x, weight, bias]: [CubeTensor; 4]) -> ([CubeTensor; 1], Self::Kept) {
        let branch = product(matrix(x.clone()), weight.clone(), x.dtype);
        ([onto(residual, branch, Some(bias), self.dropout)], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: CubeTensor) -> [CubeTensor; 4] {
        let (dbranch, sums) = branch_gradient(contiguous(dy.clone()), self.dropout, x.dtype, true);
        let [dx, dweight] = product_backward(x, weight, dbranch);
        [dy, dx, dweight, sum_groups(sums)]
    }
}

impl Operation<CubeBackend, 3> for LinearOnto {
    type Kept = [CubeTensor; 2];

    fn forward(&self, [residual, x, weight]: [CubeTensor; 3]) -> ([CubeTensor; 1], Self::Kept) {
        let branch = product(matrix(x.clone()), weight.clone(), x.dtype);
        ([onto(residual, branch, None, self.dropout)], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: CubeTensor) -> [CubeTensor; 3] {
        let (dbranch, _) = branch_gradient(contiguous(dy.clone()), self.dropout, x.dtype, false);
        let [dx, dweight] = product_backward(x, weight, dbranch);
        [dy, dx, dweight]
    }
}

impl Operation<CubeBackend, 2> for Unembed {
    type Kept = [CubeTensor; 2];

    fn forward(&self, [x, weight]: [CubeTensor; 2]) -> ([CubeTensor; 1], Self::Kept) {
        let (shape, dtype) = (with_width(&x, weight.meta.shape()[0]), x.dtype);
        let y = spaced_product(matrix(x.clone()), transposed(weight.clone()), dtype);
        ([with_rows(y, shape)], [x, weight])
    }

    fn backward(&self, kept: Self::Kept, dy: CubeTensor) -> [CubeTensor; 2] {
        unembed_backward(kept, dy, [None, None])
    }

    fn backward_onto(&self, kept: Self::Kept, dy: CubeTensor, existing: [Option<CubeTensor>; 2]) -> [CubeTensor; 2] {
        unembed_backward(kept, dy, existing)
    }
}

/// Gradients of `x` and the table of an [`Unembed`], each added to the existing one, if any.
fn unembed_backward(
    [x, weight]: [CubeTensor; 2],
    dy: CubeTensor,
    [dx, dweight]: [Option<CubeTensor>; 2],
) -> [CubeTensor; 2] {
    let (shape, dtype) = (x.meta.shape().clone(), x.dtype);
    let (x, dy) = (matrix(x), matrix(cast(dy, dtype)));
    let dweight = product_onto(dweight, transposed(dy.clone()), x, DType::F32);
    let dx = product_onto(dx.map(matrix), dy, weight, dtype);
    [with_rows(dx, shape), dweight]
}

fn transposed(mut matrix: CubeTensor) -> CubeTensor {
    matrix.meta.swap(0, 1);
    matrix
}

/// `[..., n]` as `[rows, n]`.
fn matrix(tensor: CubeTensor) -> CubeTensor {
    let size = rows_and_width(&tensor);
    with_rows(tensor, size)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn biased_kernel<T: Float, N: Size>(
    x: &[Vector<T, N>],
    bias: &[Vector<f32, N>],
    y: &mut [Vector<T, N>],
    length: usize,
    width: usize,
    #[comptime] activates: bool,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS < length {
        let mut value = Vector::cast_from(x[ABSOLUTE_POS]) + bias[ABSOLUTE_POS % width];
        if activates {
            value = gelu::<N>(value);
        }
        y[ABSOLUTE_POS] = Vector::cast_from(value);
    }
}

/// `x + b`, in place of `x` if nothing else holds it.
fn add_bias(x: CubeTensor, bias: CubeTensor) -> CubeTensor {
    biased(x, bias, false)
}

/// `gelu(x + b)`, in place of `x` if nothing else holds it.
fn gelu_of_biased(x: CubeTensor, bias: CubeTensor) -> CubeTensor {
    biased(x, bias, true)
}

/// `x + b`, or its GELU if `activates`, in place of `x` if nothing else holds it.
fn biased(x: CubeTensor, bias: CubeTensor, activates: bool) -> CubeTensor {
    let bias = float32(bias);
    let [rows, width, vector] = rows_of_vectors(&x);
    let (grid, dtype, (y, out)) = (Grid::each(&[&x], rows * width), elem(x.dtype), reuse_or_new(&x, 0));
    // SAFETY: the kernel checks every index against `length`.
    unsafe { launch!(biased_kernel, grid, vector, [x, bias, out], rows * width, width, activates, dtype) };
    y
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn biased_gelu_backward_kernel<T: Float, N: Size>(
    h: &[Vector<T, N>],
    bias: &[Vector<f32, N>],
    dy: &[Vector<T, N>],
    dh: &mut [Vector<T, N>],
    sums: &mut [Vector<f32, N>],
    rows: usize,
    width: usize,
    steps: usize,
    #[define(T)] _dtype: ElemType,
) {
    let (column, first) = (own_column(), first_row(steps));
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    for step in 0..steps {
        let row = first + step * LANES;
        if row < rows && column < width {
            let place = row * width + column;
            let x = Vector::cast_from(h[place]) + bias[column];
            let value = Vector::<f32, N>::cast_from(dy[place]) * gelu_derivative::<N>(x);
            dh[place] = Vector::cast_from(value);
            sum += value;
        }
    }
    write_column_sum::<N>(sum, sums, column, width);
}

/// Gradients of `h` and `bias`, given that of `gelu(h + bias)`.
fn biased_gelu_backward(h: CubeTensor, bias: CubeTensor, dy: CubeTensor) -> (CubeTensor, CubeTensor) {
    let [rows, width, vector] = rows_of_vectors(&h);
    let (groups, dh) = (Groups::of(rows), unfilled_like(&h));
    let sums = unfilled(&h, [groups.count, width * vector], DType::F32);
    let (grid, steps, dtype) = (groups.grid(&[&h], width), groups.steps, elem(h.dtype));
    // SAFETY: the kernel checks every index against `rows` and `width`.
    unsafe {
        launch!(biased_gelu_backward_kernel, grid, vector, [h, bias, dy, &dh, &sums], rows, width, steps, dtype);
    }
    (dh, sum_groups(sums))
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn onto_kernel<T: Float, N: Size>(
    residual: &[Vector<f32, N>],
    branch: &[Vector<T, N>],
    bias: &[Vector<f32, N>],
    y: &mut [Vector<f32, N>],
    length: usize,
    width: usize,
    mask: Mask,
    #[comptime] is_biased: bool,
    #[comptime] drops: bool,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS < length {
        let mut value = Vector::cast_from(branch[ABSOLUTE_POS]);
        if is_biased {
            value += bias[ABSOLUTE_POS % width];
        }
        if drops {
            value = dropped::<N>(value, ABSOLUTE_POS, &mask);
        }
        y[ABSOLUTE_POS] = residual[ABSOLUTE_POS] + value;
    }
}

/// `residual + dropout(branch + bias)` in float32, in place of `residual` if nothing else holds it.
fn onto(
    residual: CubeTensor,
    branch: CubeTensor,
    bias: Option<CubeTensor>,
    dropout: Option<DropoutMask>,
) -> CubeTensor {
    let (residual, is_biased, drops) = (contiguous(residual), bias.is_some(), dropout.is_some());
    // Without a bias this argument is never read.
    let bias = bias.map_or_else(|| branch.clone(), float32);
    let [rows, width, vector] = rows_of_vectors(&residual);
    let length = rows * width;
    let (grid, dtype, mask) = (Grid::each(&[&residual], length), elem(branch.dtype), mask_launch(dropout));
    let (y, out) = reuse_or_new(&residual, 0);
    // SAFETY: as above.
    unsafe {
        launch!(onto_kernel, grid, vector, [residual, branch, bias, out], length, width, mask, is_biased, drops, dtype);
    }
    y
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn branch_gradient_kernel<D: Float, T: Float, N: Size>(
    dy: &[Vector<D, N>],
    dbranch: &mut [Vector<T, N>],
    sums: &mut [Vector<f32, N>],
    rows: usize,
    width: usize,
    steps: usize,
    mask: Mask,
    #[comptime] sums_up: bool,
    #[comptime] drops: bool,
    #[define(D, T)] _dtypes: [ElemType; 2],
) {
    let (column, first) = (own_column(), first_row(steps));
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    for step in 0..steps {
        let row = first + step * LANES;
        if row < rows && column < width {
            let place = row * width + column;
            let mut value = Vector::<f32, N>::cast_from(dy[place]);
            if drops {
                value = dropped::<N>(value, place, &mask);
            }
            dbranch[place] = Vector::cast_from(value);
            sum += value;
        }
    }
    if sums_up {
        write_column_sum::<N>(sum, sums, column, width);
    }
}

/// The gradient of a branch, from that of the residual stream through dropout, in type `to`. If
/// `sums_up`, also its column sums over groups of rows, which add up to the bias's gradient.
fn branch_gradient(dy: CubeTensor, dropout: Option<DropoutMask>, to: DType, sums_up: bool) -> (CubeTensor, CubeTensor) {
    let [rows, width, vector] = rows_of_vectors(&dy);
    let groups = Groups::of(rows);
    let dbranch = unfilled(&dy, [rows, width * vector], to);
    let sums = unfilled(&dy, [if sums_up { groups.count } else { 1 }, width * vector], DType::F32);
    let (steps, mask, drops) = (groups.steps, mask_launch(dropout), dropout.is_some());
    let (grid, dtypes) = (groups.grid(&[&dy], width), [elem(dy.dtype), elem(to)]);
    // SAFETY: the kernel checks every index against `rows` and `width`.
    unsafe {
        launch!(
            branch_gradient_kernel,
            grid,
            vector,
            [dy, &dbranch, &sums],
            rows,
            width,
            steps,
            mask,
            sums_up,
            drops,
            dtypes
        );
    }
    (dbranch, sums)
}

/// `x W`, `+ b` if given: `[..., n_out]` in the type of `x`.
fn linear(x: CubeTensor, weight: CubeTensor, bias: Option<CubeTensor>) -> CubeTensor {
    let (shape, dtype) = (with_width(&x, weight.meta.shape()[1]), x.dtype);
    let (x, bias) = (matrix(x), bias.map(float32));
    let y = bias.as_ref().and_then(|bias| biased_product(&x, &weight, bias, dtype));
    let y = y.unwrap_or_else(|| {
        let y = product(x, weight, dtype);
        if let Some(bias) = bias { add_bias(y, bias) } else { y }
    });
    with_rows(y, shape)
}

/// Gradients of `x` and `weight`: the first in the type of `x`, the other in float32, as the
/// weights are.
fn product_backward(x: CubeTensor, weight: CubeTensor, dy: CubeTensor) -> [CubeTensor; 2] {
    let (shape, dtype) = (x.meta.shape().clone(), x.dtype);
    let (x, dy) = (matrix(x), matrix(cast(dy, dtype)));
    let dweight = product(transposed(x), dy.clone(), DType::F32);
    let dx = product(dy, transposed(weight), dtype);
    [with_rows(dx, shape), dweight]
}
