//! `gelu(x W + b)`: the product is kept as it comes, and both GELU and its gradient add the bias on
//! their way, so that neither the bias nor its gradient takes a pass of its own over the widest
//! tensor of a block.

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::LinearGelu;
use super::gpu::{linear, linear_backward};
use crate::gelu::gpu::{gelu, gelu_slope};
use crate::gpu::launch::{Grid, launch};
use crate::gpu::sum::{COLUMNS, Groups, LANES, of_groups, over_column};
use crate::gpu::tensor::{contiguous, elem, float32, rows_and_width, unfilled, vector_size};
use crate::operation::Operation;

impl Operation<CubeBackend, 3> for LinearGelu {
    /// The inputs, and `x W`.
    type Kept = ([CubeTensor; 3], CubeTensor);

    fn forward(&self, inputs: [CubeTensor; 3]) -> ([CubeTensor; 1], Self::Kept) {
        let [x, weight, bias] = inputs.clone();
        let (y, h) = forward(x, weight, bias);
        ([y], (inputs, h))
    }

    fn backward(&self, (inputs, h): Self::Kept, dy: CubeTensor) -> [CubeTensor; 3] {
        backward(inputs, h, dy)
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn biased_gelu_kernel<T: Float, N: Size>(
    h: &[Vector<T, N>],
    bias: &[Vector<f32, N>],
    y: &mut [Vector<T, N>],
    length: usize,
    width: usize,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= length {
        terminate!();
    }
    let x = Vector::cast_from(h[ABSOLUTE_POS]) + bias[ABSOLUTE_POS % width];
    y[ABSOLUTE_POS] = Vector::cast_from(gelu::<N>(x));
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
    let column = CUBE_POS_X as usize * COLUMNS + UNIT_POS_X as usize;
    let first = CUBE_POS_Y as usize * steps * LANES + UNIT_POS_Y as usize;
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    for step in 0..steps {
        let row = first + step * LANES;
        if row < rows && column < width {
            let place = row * width + column;
            let x = Vector::cast_from(h[place]) + bias[column];
            let value = Vector::<f32, N>::cast_from(dy[place]) * gelu_slope::<N>(x);
            dh[place] = Vector::cast_from(value);
            sum += value;
        }
    }
    let total = over_column::<N>(sum);
    if UNIT_POS_Y == 0 && column < width {
        sums[CUBE_POS_Y as usize * width + column] = total;
    }
}

/// `gelu(x W + b)`, `[..., n_out]`, and `x W`, which the backward wants; both in the type of `x`.
fn forward(x: CubeTensor, weight: CubeTensor, bias: CubeTensor) -> (CubeTensor, CubeTensor) {
    let (h, bias) = (linear(x, weight, None), float32(bias));
    let [rows, width] = rows_and_width(&h);
    let y = unfilled(&h, h.meta.shape().clone(), h.dtype);
    let vector = vector_size(width);
    let length = rows * width / vector;
    let (grid, dtype) = (Grid::each(&[&h], length), elem(h.dtype));
    // SAFETY: the kernel looks at `length` before it reads or writes a place.
    unsafe {
        launch!(biased_gelu_kernel, grid, vector, [h.clone(), bias, y.clone()], length, width / vector, dtype);
    }
    (y, h)
}

/// Gradients of `x`, `weight` and `bias`, given `h`, which is `x W`, and that of the output.
fn backward(inputs: [CubeTensor; 3], h: CubeTensor, dy: CubeTensor) -> [CubeTensor; 3] {
    let [x, weight, bias] = inputs;
    let (bias, dy) = (float32(bias), contiguous(cast(dy, h.dtype)));
    let [rows, width] = rows_and_width(&h);
    let groups = Groups::of(rows);
    let vector = vector_size(width);
    let dh = unfilled(&h, h.meta.shape().clone(), h.dtype);
    let sums = unfilled(&h, [groups.count, width], DType::F32);
    let (grid, dtype) = (groups.grid(&[&h], width / vector), elem(h.dtype));
    // SAFETY: the kernel looks at `rows` and `width` before it reads or writes a place.
    unsafe {
        launch!(
            biased_gelu_backward_kernel,
            grid,
            vector,
            [h, bias, dy, dh.clone(), sums.clone()],
            rows,
            width / vector,
            groups.steps,
            dtype
        );
    }
    let [dx, dweight] = linear_backward(x, weight, dh);
    [dx, dweight, of_groups(sums)]
}
