//! SwiGLU on a GPU, computed in float32 for every type.

use super::SwiGlu;
use crate::{gelu::gpu::sigmoid, gpu::prelude::*};

impl Operation<CubeBackend, 1> for SwiGlu {
    type Kept = CubeTensor;

    fn forward(&self, [x]: [CubeTensor; 1]) -> ([CubeTensor; 1], CubeTensor) {
        let values = contiguous(x.clone());
        let [_, both] = rows_and_width(&values);
        let y = unfilled(&values, with_width(&values, both / 2), x.dtype);
        let [rows, width, vector] = rows_of_vectors(&y);
        let (grid, dtype) = (Grid::each(&[&values], rows * width), elem(x.dtype));
        // SAFETY: the kernel checks every index against `length`; `x` has two values for each that
        // is written.
        unsafe { launch!(swiglu_kernel, grid, vector, [values, &y], rows * width, width, dtype) };
        ([y], x)
    }

    fn backward(&self, x: CubeTensor, dy: CubeTensor) -> [CubeTensor; 1] {
        let (x, dy) = (contiguous(x), contiguous(dy));
        let ([rows, width, vector], dx) = (rows_of_vectors(&dy), unfilled_like(&x));
        let (grid, dtype) = (Grid::each(&[&x], rows * width), elem(x.dtype));
        // SAFETY: as above.
        unsafe { launch!(swiglu_backward_kernel, grid, vector, [x, dy, &dx], rows * width, width, dtype) };
        [dx]
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
    if ABSOLUTE_POS < length {
        let place = ABSOLUTE_POS / width * width + ABSOLUTE_POS;
        let gate = Vector::<f32, N>::cast_from(x[place]);
        let up = Vector::<f32, N>::cast_from(x[place + width]);
        y[ABSOLUTE_POS] = Vector::cast_from(gate * sigmoid::<N>(gate) * up);
    }
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
    if ABSOLUTE_POS < length {
        let place = ABSOLUTE_POS / width * width + ABSOLUTE_POS;
        let gate = Vector::<f32, N>::cast_from(x[place]);
        let up = Vector::<f32, N>::cast_from(x[place + width]);
        let dy = Vector::<f32, N>::cast_from(dy[ABSOLUTE_POS]);
        let one = Vector::new(f32::new(1.0));
        let sigmoid = sigmoid::<N>(gate);
        dx[place] = Vector::cast_from(dy * up * sigmoid * (gate * (one - sigmoid) + one));
        dx[place + width] = Vector::cast_from(dy * gate * sigmoid);
    }
}
