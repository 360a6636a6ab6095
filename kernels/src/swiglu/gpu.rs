//! SwiGLU on a GPU: in float32, whatever the type of the values.

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::SwiGlu;
use crate::gelu::gpu::sigmoid;
use crate::gpu::launch::{Grid, launch};
use crate::gpu::tensor::{contiguous, elem, rows_and_width, unfilled, vector_size, with_width};
use crate::operation::Operation;

impl Operation<CubeBackend, 1> for SwiGlu {
    type Kept = CubeTensor;

    fn forward(&self, [x]: [CubeTensor; 1]) -> ([CubeTensor; 1], CubeTensor) {
        ([forward(x.clone())], x)
    }

    fn backward(&self, x: CubeTensor, dy: CubeTensor) -> [CubeTensor; 1] {
        [backward(x, dy)]
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn swiglu_kernel<T: Float, N: Size>(
    x: &[Vector<T, N>],
    y: &mut [Vector<T, N>],
    length: usize,
    width: usize,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= length {
        terminate!();
    }
    let place = ABSOLUTE_POS / width * width + ABSOLUTE_POS;
    let gate = Vector::<f32, N>::cast_from(x[place]);
    let up = Vector::<f32, N>::cast_from(x[place + width]);
    y[ABSOLUTE_POS] = Vector::cast_from(gate * sigmoid::<N>(gate) * up);
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn swiglu_backward_kernel<T: Float, N: Size>(
    x: &[Vector<T, N>],
    dy: &[Vector<T, N>],
    dx: &mut [Vector<T, N>],
    length: usize,
    width: usize,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= length {
        terminate!();
    }
    let place = ABSOLUTE_POS / width * width + ABSOLUTE_POS;
    let gate = Vector::<f32, N>::cast_from(x[place]);
    let up = Vector::<f32, N>::cast_from(x[place + width]);
    let dy = Vector::<f32, N>::cast_from(dy[ABSOLUTE_POS]);
    let one = Vector::new(f32::new(1.0));
    let sigmoid = sigmoid::<N>(gate);
    dx[place] = Vector::cast_from(dy * up * sigmoid * (gate * (one - sigmoid) + one));
    dx[place + width] = Vector::cast_from(dy * gate * sigmoid);
}

/// `silu(gate) * up` of `x` `[..., 2 n]`, whose rows hold the gate, then `up`: `[..., n]`.
fn forward(x: CubeTensor) -> CubeTensor {
    let x = contiguous(x);
    let [_, width] = rows_and_width(&x);
    let y = unfilled(&x, with_width(&x, width / 2), x.dtype);
    let length = y.meta.num_elements();
    let vector = vector_size(width / 2);
    let (grid, dtype) = (Grid::each(&[&x], length / vector), elem(x.dtype));
    // SAFETY: as above; `x` has two values for each that is written.
    unsafe {
        launch!(swiglu_kernel, grid, vector, [x, y.clone()], length / vector, width / 2 / vector, dtype);
    }
    y
}

/// Gradient of `x`, given that of SwiGLU's output, which has its type.
fn backward(x: CubeTensor, dy: CubeTensor) -> CubeTensor {
    let (x, dy) = (contiguous(x), contiguous(dy));
    let [_, width] = rows_and_width(&dy);
    let dx = unfilled(&x, x.meta.shape().clone(), x.dtype);
    let length = dy.meta.num_elements();
    let vector = vector_size(width);
    let (grid, dtype) = (Grid::each(&[&x], length / vector), elem(x.dtype));
    // SAFETY: as above.
    unsafe {
        launch!(swiglu_backward_kernel, grid, vector, [x, dy, dx.clone()], length / vector, width / vector, dtype);
    }
    dx
}
