//! What happens to each value by itself: GELU and SwiGLU, with their gradients. In float32, whatever the type of the values.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::gpu::tensor::{address_type, contiguous, elem, one_unit_each, rows_and_width, unfilled, vector_size};

/// `2 sqrt(2 / pi)`, so that the exponent of GELU's sigmoid is `-(A x + A B x^3)`.
const A: f32 = 1.595_769;
const B: f32 = 0.044_715;

/// `1 / (1 + e^(-x))`
#[cube]
fn sigmoid<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    Vector::new(f32::new(1.0)) / (Vector::new(f32::new(1.0)) + (-x).exp())
}

/// GELU in its tanh form, written with a sigmoid: `(1 + tanh(u)) / 2 = 1 / (1 + e^(-2u))`.
#[cube]
pub fn gelu<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let (a, b, one) = (Vector::new(f32::new(A)), Vector::new(f32::new(B)), Vector::new(f32::new(1.0)));
    x * sigmoid::<N>(a * x * (b * x * x + one))
}

/// The slope of [`gelu`].
#[cube]
pub fn gelu_slope<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
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
    if ABSOLUTE_POS >= length {
        terminate!();
    }
    y[ABSOLUTE_POS] = Vector::cast_from(gelu::<N>(Vector::cast_from(x[ABSOLUTE_POS])));
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn gelu_backward_kernel<T: Float, N: Size>(
    x: &[Vector<T, N>],
    dy: &[Vector<T, N>],
    dx: &mut [Vector<T, N>],
    length: usize,
    #[define(T)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= length {
        terminate!();
    }
    let slope = gelu_slope::<N>(Vector::cast_from(x[ABSOLUTE_POS]));
    dx[ABSOLUTE_POS] = Vector::cast_from(Vector::<f32, N>::cast_from(dy[ABSOLUTE_POS]) * slope);
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

/// GELU of every value.
pub fn gelu_forward(x: CubeTensor) -> CubeTensor {
    let x = contiguous(x);
    let y = unfilled(&x, x.meta.shape().clone(), x.dtype);
    let length = x.meta.num_elements();
    let vector = vector_size(length);
    let (cubes, units) = one_unit_each(&x, length / vector);
    let (client, dtype, address) = (x.client.clone(), elem(x.dtype), address_type(&[&x]));
    // SAFETY: the kernel looks at `length` before it reads or writes a place.
    unsafe {
        gelu_kernel::launch_unchecked(
            &client,
            cubes,
            units,
            address,
            vector,
            x.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            length / vector,
            dtype,
        );
    }
    y
}

/// Gradient of `x`, given that of GELU's output, which has its type.
pub fn gelu_backward(x: CubeTensor, dy: CubeTensor) -> CubeTensor {
    let (x, dy) = (contiguous(x), contiguous(dy));
    let dx = unfilled(&x, x.meta.shape().clone(), x.dtype);
    let length = x.meta.num_elements();
    let vector = vector_size(length);
    let (cubes, units) = one_unit_each(&x, length / vector);
    let (client, dtype, address) = (x.client.clone(), elem(x.dtype), address_type(&[&x]));
    // SAFETY: as above.
    unsafe {
        gelu_backward_kernel::launch_unchecked(
            &client,
            cubes,
            units,
            address,
            vector,
            x.into_buffer_arg(),
            dy.into_buffer_arg(),
            dx.clone().into_buffer_arg(),
            length / vector,
            dtype,
        );
    }
    dx
}

/// `silu(gate) * up` of `x` `[..., 2 n]`, whose rows hold the gate, then `up`: `[..., n]`.
pub fn swiglu_forward(x: CubeTensor) -> CubeTensor {
    let x = contiguous(x);
    let [_, width] = rows_and_width(&x);
    let mut shape = x.meta.shape().clone();
    let last = shape.num_dims() - 1;
    shape[last] = width / 2;
    let y = unfilled(&x, shape, x.dtype);
    let length = y.meta.num_elements();
    let vector = vector_size(width / 2);
    let (cubes, units) = one_unit_each(&x, length / vector);
    let (client, dtype, address) = (x.client.clone(), elem(x.dtype), address_type(&[&x]));
    // SAFETY: as above; `x` has two values for each that is written.
    unsafe {
        swiglu_kernel::launch_unchecked(
            &client,
            cubes,
            units,
            address,
            vector,
            x.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            length / vector,
            width / 2 / vector,
            dtype,
        );
    }
    y
}

/// Gradient of `x`, given that of SwiGLU's output, which has its type.
pub fn swiglu_backward(x: CubeTensor, dy: CubeTensor) -> CubeTensor {
    let (x, dy) = (contiguous(x), contiguous(dy));
    let [_, width] = rows_and_width(&dy);
    let dx = unfilled(&x, x.meta.shape().clone(), x.dtype);
    let length = dy.meta.num_elements();
    let vector = vector_size(width);
    let (cubes, units) = one_unit_each(&x, length / vector);
    let (client, dtype, address) = (x.client.clone(), elem(x.dtype), address_type(&[&x]));
    // SAFETY: as above.
    unsafe {
        swiglu_backward_kernel::launch_unchecked(
            &client,
            cubes,
            units,
            address,
            vector,
            x.into_buffer_arg(),
            dy.into_buffer_arg(),
            dx.clone().into_buffer_arg(),
            length / vector,
            width / vector,
            dtype,
        );
    }
    dx
}
