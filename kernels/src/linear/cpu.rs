//! Products of `[rows, n_in]` with the weights, and their gradients, in float32 or bfloat16: three
//! variants of [`Product`] for many rows, and special loops for one row (`one_row.rs`).

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType, bf16};

use super::{Linear, LinearGelu, LinearOnto, Unembed, one_row::add_one_row, one_row::one_row_transposed};
use crate::gelu::cpu::{gelu, gelu_backward};
use crate::gemm::{Element, Matrix, MatrixMut, Onto, Product, Threads};
use crate::{cpu::prelude::*, dropout::cpu::dropped, halves::widen_bf16, simd::add, simd::sum_of};

impl Operation<Flex, 3> for Linear {
    type Kept = [FlexTensor; 2];

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3]) -> ([FlexTensor; 1], Self::Kept) {
        ([linear(x.clone(), weight.clone(), Some(bias))], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 3] {
        linear_backward(x, weight, dy)
    }
}

impl Operation<Flex, 2> for Linear {
    type Kept = [FlexTensor; 2];

    fn forward(&self, [x, weight]: [FlexTensor; 2]) -> ([FlexTensor; 1], Self::Kept) {
        ([linear(x.clone(), weight.clone(), None)], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 2] {
        product_backward(x, weight, dy)
    }
}

impl Operation<Flex, 3> for LinearGelu {
    /// `x`, the weight, and GELU's input.
    type Kept = [FlexTensor; 3];

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3]) -> ([FlexTensor; 1], Self::Kept) {
        let h = linear(x.clone(), weight.clone(), Some(bias));
        ([gelu(h.clone())], [x, weight, h])
    }

    fn backward(&self, [x, weight, h]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 3] {
        linear_backward(x, weight, gelu_backward(h, dy))
    }
}

impl Operation<Flex, 4> for LinearOnto {
    type Kept = [FlexTensor; 2];

    fn forward(&self, [residual, x, weight, bias]: [FlexTensor; 4]) -> ([FlexTensor; 1], Self::Kept) {
        ([self.onto(residual, x.clone(), weight.clone(), Some(bias))], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 4] {
        let of_branch = self.of_branch(dy.clone(), x.dtype());
        let [dx, dweight, dbias] = linear_backward(x, weight, of_branch);
        [dy, dx, dweight, dbias]
    }
}

impl Operation<Flex, 3> for LinearOnto {
    type Kept = [FlexTensor; 2];

    fn forward(&self, [residual, x, weight]: [FlexTensor; 3]) -> ([FlexTensor; 1], Self::Kept) {
        ([self.onto(residual, x.clone(), weight.clone(), None)], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 3] {
        let of_branch = self.of_branch(dy.clone(), x.dtype());
        let [dx, dweight] = product_backward(x, weight, of_branch);
        [dy, dx, dweight]
    }
}

impl LinearOnto {
    /// `residual + dropout(x W + b)`.
    fn onto(&self, residual: FlexTensor, x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
        // Dropout applies to the branch alone, so the branch is computed separately.
        if let Some(mask) = self.dropout {
            let branch = cast(linear(x, weight, bias), FloatDType::F32);
            return Flex::float_add(residual, dropped(branch, mask));
        }
        let (residual, bias) = (float32(residual), bias.map(float32));
        let [_, n_out] = dims(&weight);
        let added = Added { bias: bias.as_ref().map(values), residual: Some(values(&residual)) };
        let y = if is_bf16(&weight) {
            times::<bf16, _>(values(&bfloat16(x)), values(&contiguous(weight)), n_out, added)
        } else {
            times_float32(values(&float32(x)), values(&float32(weight)), n_out, added)
        };
        tensor_of(y, residual.layout().shape().clone())
    }

    /// The gradient of the branch, in type `dtype`, given that of the sum.
    fn of_branch(&self, dy: FlexTensor, dtype: DType) -> FlexTensor {
        let dropped = match self.dropout {
            Some(mask) => dropped(dy, mask),
            None => dy,
        };
        cast(dropped, dtype.into())
    }
}

impl Operation<Flex, 2> for Unembed {
    type Kept = [FlexTensor; 2];

    // The output is always float32: logits affect the loss directly.
    fn forward(&self, [x, weight]: [FlexTensor; 2]) -> ([FlexTensor; 1], Self::Kept) {
        let [vocab, n_embd] = dims(&weight);
        let y = if is_bf16(&weight) {
            times_transposed::<bf16, f32>(values(&bfloat16(x.clone())), values(&contiguous(weight.clone())), n_embd)
        } else {
            let (x, weight) = (float32(x.clone()), float32(weight.clone()));
            match values(&x) {
                row if row.len() == n_embd => one_row_transposed(row, values(&weight)),
                rows => times_transposed(rows, values(&weight), n_embd),
            }
        };
        ([tensor_of(y, with_width(&x, vocab))], [x, weight])
    }

    fn backward(&self, [x, weight]: Self::Kept, dy: FlexTensor) -> [FlexTensor; 2] {
        let (dtype, shape) = (x.dtype(), x.layout().shape().clone());
        let size: [usize; 2] = dims(&weight);
        let (is_half, given) = (is_bf16(&weight), [x, weight, dy]);
        let (dx, dweight) = if is_half {
            unembed_backward::<bf16>(given.map(bfloat16).each_ref().map(values), size[1])
        } else {
            unembed_backward::<f32>(given.map(float32).each_ref().map(values), size[1])
        };
        [tensor_of_type(dx, shape, dtype), tensor_of(dweight, size)]
    }
}

/// `x W + b`.
fn linear(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let [_, n_out] = dims(&weight);
    let (dtype, shape) = (x.dtype(), with_width(&x, n_out));
    let bias = bias.map(float32);
    let added = Added { bias: bias.as_ref().map(values), residual: None };
    if is_bf16(&weight) {
        return tensor_of(times::<bf16, bf16>(values(&bfloat16(x)), values(&contiguous(weight)), n_out, added), shape);
    }
    tensor_of_type(times_float32(values(&float32(x)), values(&float32(weight)), n_out, added), shape, dtype)
}

// The weights' gradients stay float32, as the weights are: they are not rounded.

/// Gradients of `x`, the weight and the bias.
fn linear_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor) -> [FlexTensor; 3] {
    let [_, n_out] = dims(&weight);
    let dbias = if is_bf16(&weight) && is_bf16(&dy) {
        column_sums(values(&contiguous(dy.clone())), n_out, |sums, row, wide| {
            widen_bf16(row, wide);
            add(sums, wide);
        })
    } else {
        column_sums(values(&float32(dy.clone())), n_out, |sums, row, _| add(sums, row))
    };
    let [dx, dweight] = product_backward(x, weight, dy);
    [dx, dweight, tensor_of(dbias, [n_out])]
}

/// Gradients of `x` and the weight.
fn product_backward(x: FlexTensor, weight: FlexTensor, dy: FlexTensor) -> [FlexTensor; 2] {
    let size: [usize; 2] = dims(&weight);
    let (dtype, shape) = (x.dtype(), x.layout().shape().clone());
    let (is_half, given) = (is_bf16(&weight), [x, weight, dy]);
    if is_half {
        let (dx, dweight) = backward::<bf16>(given.map(bfloat16).each_ref().map(values), size[0]);
        return [tensor_of(dx, shape), tensor_of(dweight, size)];
    }
    let (dx, dweight) = backward::<f32>(given.map(float32).each_ref().map(values), size[0]);
    [tensor_of_type(dx, shape, dtype), tensor_of(dweight, size)]
}

/// What is added to a product.
#[derive(Clone, Copy, Debug, Default)]
struct Added<'a> {
    /// A row `[n_out]`, added to every row.
    bias: Option<&'a [f32]>,
    /// `[rows, n_out]`.
    residual: Option<&'a [f32]>,
}

/// `x W` plus what is `added`: x `[rows, n_in]`, W `[n_in, n_out]`.
fn times<T: Element, O: Element>(x: &[T], weight: &[T], n_out: usize, added: Added) -> Vec<O> {
    let n_in = weight.len() / n_out;
    multiply(Matrix::new(x, n_in), Matrix::new(weight, n_out), added)
}

/// `x Wᵀ`: x `[rows, n_in]`, W `[n_out, n_in]`.
fn times_transposed<T: Element, O: Element>(x: &[T], weight: &[T], n_in: usize) -> Vec<O> {
    multiply(Matrix::new(x, n_in), Matrix::new(weight, n_in).transposed(), Added::default())
}

/// `xᵀ y`: x `[rows, n_in]`, y `[rows, n_out]`.
fn transposed_times<T: Element>(x: &[T], y: &[T], rows: usize) -> Vec<f32> {
    let (n_in, n_out) = (x.len() / rows, y.len() / rows);
    multiply(Matrix::new(x, n_in).transposed(), Matrix::new(y, n_out), Added::default())
}

fn multiply<T: Element, O: Element>(a: Matrix<T>, b: Matrix<T>, added: Added) -> Vec<O> {
    let ([m, _], [_, n]) = (a.size(), b.size());
    let onto = added.residual.map_or(Onto::Nothing, |residual| Onto::Matrix(Matrix::new(residual, n)));
    let mut c = unfilled(m * n);
    Product { a, b, onto, bias: added.bias }.write(MatrixMut::new(&mut c, n), Threads::All);
    c
}

/// [`times`] in float32, with a special case for one row.
fn times_float32(x: &[f32], weight: &[f32], n_out: usize, added: Added) -> Vec<f32> {
    if x.len() * n_out != weight.len() {
        return times(x, weight, n_out, added);
    }
    let mut y = added.bias.map_or_else(|| vec![0.0; n_out], <[f32]>::to_vec);
    add_one_row(&mut y, x, weight);
    if let Some(residual) = added.residual {
        add(&mut y, residual);
    }
    y
}

/// Gradients of `x W` with respect to x and W, given that of the output.
fn backward<T: Element>([x, weight, dy]: [&[T]; 3], n_in: usize) -> (Vec<T>, Vec<f32>) {
    (times_transposed(dy, weight, weight.len() / n_in), transposed_times(x, dy, x.len() / n_in))
}

/// Gradients of `x Wᵀ` with respect to x and W, given that of the output.
fn unembed_backward<T: Element>([x, weight, dy]: [&[T]; 3], n_embd: usize) -> (Vec<f32>, Vec<f32>) {
    (times(dy, weight, n_embd, Added::default()), transposed_times(dy, x, x.len() / n_embd))
}

/// Rows per partial sum.
const SUMMED_AT_ONCE: usize = 64;

/// Sum over the rows of a matrix with `n` columns, in an order that does not depend on the number
/// of threads: the gradient of a bias. `add_row` adds a row to the sums, with a scratch row as its
/// third argument.
fn column_sums<T: Sync>(x: &[T], n: usize, add_row: impl Fn(&mut [f32], &[T], &mut [f32]) + Sync) -> Vec<f32> {
    let partial = x.par_chunks(SUMMED_AT_ONCE * n).map(|rows| {
        let (mut sums, mut room) = (vec![0.0; n], vec![0.0; n]);
        rows.chunks_exact(n).for_each(|row| add_row(&mut sums, row, &mut room));
        sums
    });
    sum_of(&partial.collect::<Vec<_>>(), n)
}
