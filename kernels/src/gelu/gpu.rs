//! GELU on a GPU, computed in float32 for every type.

use super::{A, B, Gelu};
use crate::gpu::prelude::*;

impl Operation<CubeBackend, 1> for Gelu {
    type Kept = CubeTensor;

    fn forward(&self, [x]: [CubeTensor; 1]) -> ([CubeTensor; 1], CubeTensor) {
        let values = contiguous(x.clone());
        let (y, (grid, vector, length), dtype) = (unfilled_like(&values), Grid::vectors(&values), elem(x.dtype));
        // SAFETY: the kernel checks every index against `length`.
        unsafe { launch!(gelu_kernel, grid, vector, [values, &y], length, dtype) };
        ([y], x)
    }

    fn backward(&self, x: CubeTensor, dy: CubeTensor) -> [CubeTensor; 1] {
        let (x, dy) = (contiguous(x), contiguous(dy));
        let (dx, (grid, vector, length), dtype) = (unfilled_like(&x), Grid::vectors(&x), elem(x.dtype));
        // SAFETY: as above.
        unsafe { launch!(gelu_backward_kernel, grid, vector, [x, dy, &dx], length, dtype) };
        [dx]
    }
}

/// `1 / (1 + e^(-x))`
#[cube]
pub fn sigmoid<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    Vector::new(f32::new(1.0)) / (Vector::new(f32::new(1.0)) + (-x).exp())
}

/// GELU in its tanh form, written with a sigmoid: `(1 + tanh(u)) / 2 = 1 / (1 + e^(-2u))`.
#[cube]
pub fn gelu<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let (a, b, one) = (Vector::new(f32::new(A)), Vector::new(f32::new(B)), Vector::new(f32::new(1.0)));
    x * sigmoid::<N>(a * x * (b * x * x + one))
}

/// The derivative of [`gelu`].
#[cube]
pub fn gelu_derivative<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let (a, b, one) = (Vector::new(f32::new(A)), Vector::new(f32::new(B)), Vector::new(f32::new(1.0)));
    let sigmoid = sigmoid::<N>(a * x * (b * x * x + one));
    let du = a * (Vector::new(f32::new(3.0)) * b * x * x + one);
    sigmoid * (x * (one - sigmoid) * du + one)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gelu_kernel<T: Float, N: Size>(
    x: &[Vector<T, N>],
    y: &mut [Vector<T, N>],
    length: usize,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS < length {
        y[ABSOLUTE_POS] = Vector::cast_from(gelu::<N>(Vector::cast_from(x[ABSOLUTE_POS])));
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gelu_backward_kernel<T: Float, N: Size>(
    x: &[Vector<T, N>],
    dy: &[Vector<T, N>],
    dx: &mut [Vector<T, N>],
    length: usize,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS < length {
        let derivative = gelu_derivative::<N>(Vector::cast_from(x[ABSOLUTE_POS]));
        dx[ABSOLUTE_POS] = Vector::cast_from(Vector::<f32, N>::cast_from(dy[ABSOLUTE_POS]) * derivative);
    }
}
