//! Products of `[rows, n_in]` with the weights and their gradients, float32 or bfloat16: three shapes of [`Product`] for many rows, loops
//! of their own for one (`few_rows.rs`).

use burn::tensor::bf16;
use rayon::prelude::*;

use super::one_row::{one_row, one_row_transposed};
use crate::cpu::convert::widen_bf16;
use crate::gemm::{Element, Product, Stored, Threads, View};
use crate::simd::add;

/// What a product is added to on its way to memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added<'a> {
    /// A row `[n_out]`, to every row.
    pub bias: Option<&'a [f32]>,
    /// `[rows, n_out]`.
    pub residual: Option<&'a [f32]>,
}

/// `x W` and what is added: x `[rows, n_in]`, W `[n_in, n_out]`.
pub fn times<T: Element, O: Stored>(x: &[T], weight: &[T], n_out: usize, added: Added) -> Vec<O> {
    let n_in = weight.len() / n_out;
    multiply([x.len() / n_in, n_out, n_in], View::rows(x, n_in), View::rows(weight, n_out), added)
}

/// `x Wᵀ`: x `[rows, n_in]`, W `[n_out, n_in]`.
pub fn times_transposed<T: Element, O: Stored>(x: &[T], weight: &[T], n_in: usize) -> Vec<O> {
    let (rows, n_out) = (x.len() / n_in, weight.len() / n_in);
    multiply([rows, n_out, n_in], View::rows(x, n_in), View::transposed(weight, n_in), Added::default())
}

/// `xᵀ y`: x `[rows, n_in]`, y `[rows, n_out]`.
pub fn transposed_times<T: Element>(x: &[T], y: &[T], rows: usize) -> Vec<f32> {
    let (n_in, n_out) = (x.len() / rows, y.len() / rows);
    multiply([n_in, n_out, rows], View::transposed(x, n_in), View::rows(y, n_out), Added::default())
}

fn multiply<T: Element, O: Stored>([m, n, k]: [usize; 3], a: View<T>, b: View<T>, added: Added) -> Vec<O> {
    assert!(added.bias.is_none_or(|bias| bias.len() == n), "a bias of {n} values");
    assert!(added.residual.is_none_or(|residual| residual.len() == m * n), "a residual of {m} rows of {n} values");
    let onto = added.residual.map(|residual| View::rows(residual, n));
    let mut c: Vec<O> = Vec::with_capacity(m * n);
    let c_view = View { start: c.as_mut_ptr().cast_const(), row: n, column: 1 };
    // SAFETY: c has room for m * n values, all of which are written; a and b are views of slices of their sizes, made in this file.
    unsafe {
        Product { size: [m, n, k], a, b, onto, bias: added.bias }.write(c_view, Threads::All);
        c.set_len(m * n);
    }
    c
}

/// `x W + b` of float32: x `[rows, n_in]`, W `[n_in, n_out]`.
pub fn forward(x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    if x.len() * bias.len() == weight.len() {
        return one_row(x, weight, bias);
    }
    times(x, weight, bias.len(), Added { bias: Some(bias), residual: None })
}

/// `x W` of float32: x `[rows, n_in]`, W `[n_in, n_out]`.
pub fn forward_without_bias(x: &[f32], weight: &[f32], n_out: usize) -> Vec<f32> {
    if x.len() * n_out == weight.len() {
        return one_row(x, weight, &vec![0.0; n_out]);
    }
    times(x, weight, n_out, Added::default())
}

/// `residual + x W + b` of float32: residual `[rows, n_out]`.
pub fn forward_onto(residual: &[f32], x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    if x.len() * bias.len() == weight.len() {
        let mut y = one_row(x, weight, bias);
        add(&mut y, residual);
        return y;
    }
    times(x, weight, bias.len(), Added { bias: Some(bias), residual: Some(residual) })
}

/// `x Wᵀ` of float32: x `[rows, n_embd]`, W `[vocab, n_embd]`.
pub fn unembed(x: &[f32], weight: &[f32], n_embd: usize) -> Vec<f32> {
    if x.len() == n_embd {
        return one_row_transposed(x, weight);
    }
    times_transposed(x, weight, n_embd)
}

/// Gradients of `x W` with respect to x and W, given that of the output.
pub fn backward<T: Element, O: Stored>(x: &[T], weight: &[T], dy: &[T], n_in: usize) -> (Vec<O>, Vec<f32>) {
    (times_transposed(dy, weight, weight.len() / n_in), transposed_times(x, dy, x.len() / n_in))
}

/// Gradients of `x Wᵀ` with respect to x and W, given that of the output.
pub fn unembed_backward<T: Element>(x: &[T], weight: &[T], dy: &[T], n_embd: usize) -> (Vec<f32>, Vec<f32>) {
    (times(dy, weight, n_embd, Added::default()), transposed_times(dy, x, x.len() / n_embd))
}

/// Rows that are summed up before their sums are.
const SUMMED_AT_ONCE: usize = 64;

/// Sum over the rows of a matrix with `n` columns, in an order that the number of threads does not change: the gradient of a bias.
pub fn column_sums(x: &[f32], n: usize) -> Vec<f32> {
    let partial = x.par_chunks(SUMMED_AT_ONCE * n).map(|rows| {
        let mut sums = vec![0.0; n];
        rows.chunks_exact(n).for_each(|row| add(&mut sums, row));
        sums
    });
    total(partial.collect(), n)
}

/// [`column_sums`] of bfloat16.
pub fn column_sums_bf16(x: &[bf16], n: usize) -> Vec<f32> {
    let partial = x.par_chunks(SUMMED_AT_ONCE * n).map(|rows| {
        let (mut sums, mut wide) = (vec![0.0; n], vec![0.0; n]);
        for row in rows.chunks_exact(n) {
            widen_bf16(row, &mut wide);
            add(&mut sums, &wide);
        }
        sums
    });
    total(partial.collect(), n)
}

fn total(partial: Vec<Vec<f32>>, n: usize) -> Vec<f32> {
    let mut total = vec![0.0; n];
    partial.iter().for_each(|sums| add(&mut total, sums));
    total
}
