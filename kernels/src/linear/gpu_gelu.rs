//! `gelu(x W + b)`: the product is kept as it comes, and both GELU and its gradient add the bias on
//! their way, so that neither the bias nor its gradient takes a pass of its own over the widest
//! tensor of a block.

use super::LinearGelu;
use super::gpu::{linear, linear_backward};
use crate::gelu::gpu::{gelu, gelu_slope};
use crate::gpu::prelude::*;
use crate::gpu::sum::{COLUMNS, Groups, LANES, of_groups, write_column_sum};

impl Operation<CubeBackend, 3> for LinearGelu {
    /// The inputs, and `x W`.
    type Kept = [CubeTensor; 4];

    fn forward(&self, [x, weight, bias]: [CubeTensor; 3]) -> ([CubeTensor; 1], Self::Kept) {
        let h = linear(x.clone(), weight.clone(), None);
        ([biased_gelu(h.clone(), float32(bias.clone()))], [x, weight, bias, h])
    }

    fn backward(&self, [x, weight, bias, h]: Self::Kept, dy: CubeTensor) -> [CubeTensor; 3] {
        let dy = contiguous(cast(dy, h.dtype));
        let (dh, dbias) = biased_gelu_backward(h, float32(bias), dy);
        let [dx, dweight] = linear_backward(x, weight, dh);
        [dx, dweight, dbias]
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
    write_column_sum::<N>(sum, sums, column, width);
}

/// `gelu(h + bias)`, in the type of `h`.
fn biased_gelu(h: CubeTensor, bias: CubeTensor) -> CubeTensor {
    let [rows, width] = rows_and_width(&h);
    let (y, vector) = (unfilled_like(&h), vector_size(width));
    let (width, length) = (width / vector, rows * width / vector);
    let (grid, dtype) = (Grid::each(&[&h], length), elem(h.dtype));
    // SAFETY: the kernel looks at `length` before it reads or writes a place.
    unsafe { launch!(biased_gelu_kernel, grid, vector, [h, bias, &y], length, width, dtype) };
    y
}

/// Gradients of `h` and `bias`, given that of the output.
fn biased_gelu_backward(h: CubeTensor, bias: CubeTensor, dy: CubeTensor) -> (CubeTensor, CubeTensor) {
    let [rows, width] = rows_and_width(&h);
    let (groups, dh, vector) = (Groups::of(rows), unfilled_like(&h), vector_size(width));
    let sums = unfilled(&h, [groups.count, width], DType::F32);
    let (width, steps) = (width / vector, groups.steps);
    let (grid, dtype) = (groups.grid(&[&h], width), elem(h.dtype));
    // SAFETY: the kernel looks at `rows` and `width` before it reads or writes a place.
    unsafe {
        launch!(biased_gelu_backward_kernel, grid, vector, [h, bias, dy, &dh, &sums], rows, width, steps, dtype);
    }
    (dh, of_groups(sums))
}
