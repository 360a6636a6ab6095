//! Matrix products of `[rows, n_in]` with the weights: the gemm crate for many rows, our own product for one row, which is
//! what decoding does and where the memory's bandwidth is the limit.

use rayon::prelude::*;

use super::layer_norm::add;
use super::tensor::unfilled;
use crate::simd_versions;

/// A matrix inside a slice: its first value and the distance between rows and between columns.
#[derive(Clone, Copy)]
pub struct View {
    /// First value.
    pub start: *const f32,
    /// Values from one row to the next.
    pub row: usize,
    /// Values from one column to the next.
    pub column: usize,
}

impl View {
    /// A matrix stored row after row.
    pub fn rows(values: &[f32], columns: usize) -> Self {
        Self { start: values.as_ptr(), row: columns, column: 1 }
    }

    /// The transpose of a matrix stored row after row.
    pub fn transposed(values: &[f32], columns: usize) -> Self {
        Self { start: values.as_ptr(), row: 1, column: columns }
    }
}

/// `c = a b`, or `c += a b` if `accumulate`, for a `[m, k]`, b `[k, n]` and c `[m, n]`, on this thread or on all.
///
/// # Safety
/// The three matrices must lie inside memory that is valid for reading, and for writing where c is.
pub unsafe fn product([m, n, k]: [usize; 3], c: View, accumulate: bool, a: View, b: View, threads: gemm::Parallelism) {
    let step = |step: usize| step as isize;
    // SAFETY: the caller's promise.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.start.cast_mut(),
            step(c.column),
            step(c.row),
            accumulate,
            a.start,
            step(a.column),
            step(a.row),
            b.start,
            step(b.column),
            step(b.row),
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            threads,
        );
    }
}

/// Below this many multiplications a product is done on one thread: waking the others costs more.
const WORTH_SHARING: usize = 48 * 48 * 256;

pub(super) fn parallelism(m: usize, n: usize, k: usize) -> gemm::Parallelism {
    if m * n * k < WORTH_SHARING || rayon::current_num_threads() == 1 {
        gemm::Parallelism::None
    } else {
        gemm::Parallelism::Rayon(0)
    }
}

/// `a b` with `a` `[m, k]` and `b` `[k, n]`, on top of `c` if it is given.
fn multiply([m, n, k]: [usize; 3], a: View, b: View, c: Option<Vec<f32>>) -> Vec<f32> {
    let accumulate = c.is_some();
    let mut c = c.unwrap_or_else(|| unfilled(m * n));
    let view = View { start: c.as_mut_ptr(), row: n, column: 1 };
    // SAFETY: c has m * n values; a and b are views of slices of their sizes, made in this file.
    unsafe { product([m, n, k], view, accumulate, a, b, parallelism(m, n, k)) };
    c
}

/// `x W + b`: x `[rows, n_in]`, W `[n_in, n_out]`.
pub fn forward(x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let n_out = bias.len();
    let n_in = weight.len() / n_out;
    let rows = x.len() / n_in;
    if rows == 1 {
        return one_row(x, weight, bias);
    }
    let mut y = unfilled(rows * n_out);
    y.par_chunks_mut(64 * n_out)
        .for_each(|rows| rows.chunks_exact_mut(n_out).for_each(|row| row.copy_from_slice(bias)));
    multiply([rows, n_out, n_in], View::rows(x, n_in), View::rows(weight, n_out), Some(y))
}

/// `x W`: x `[rows, n_in]`, W `[n_in, n_out]`.
pub fn forward_without_bias(x: &[f32], weight: &[f32], n_out: usize) -> Vec<f32> {
    let n_in = weight.len() / n_out;
    let rows = x.len() / n_in;
    if rows == 1 {
        return one_row(x, weight, &vec![0.0; n_out]);
    }
    multiply([rows, n_out, n_in], View::rows(x, n_in), View::rows(weight, n_out), None)
}

/// Gradients of `x W + b` with respect to x, W and b, given that of the output.
pub fn backward(x: &[f32], weight: &[f32], dy: &[f32], n_in: usize) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let (dx, dweight) = backward_without_bias(x, weight, dy, n_in);
    (dx, dweight, column_sums(dy, weight.len() / n_in))
}

/// Gradients of `x W` with respect to x and W, given that of the output.
pub fn backward_without_bias(x: &[f32], weight: &[f32], dy: &[f32], n_in: usize) -> (Vec<f32>, Vec<f32>) {
    let n_out = weight.len() / n_in;
    let rows = x.len() / n_in;
    let dx = multiply([rows, n_in, n_out], View::rows(dy, n_out), View::transposed(weight, n_out), None);
    let dweight = multiply([n_in, n_out, rows], View::transposed(x, n_in), View::rows(dy, n_out), None);
    (dx, dweight)
}

/// `x Wᵀ`: x `[rows, n_embd]`, W `[vocab, n_embd]`.
pub fn unembed(x: &[f32], weight: &[f32], n_embd: usize) -> Vec<f32> {
    let (rows, vocab) = (x.len() / n_embd, weight.len() / n_embd);
    if rows == 1 {
        return one_row_transposed(x, weight);
    }
    multiply([rows, vocab, n_embd], View::rows(x, n_embd), View::transposed(weight, n_embd), None)
}

/// Gradients of `x Wᵀ` with respect to x and W, given that of the output.
pub fn unembed_backward(x: &[f32], weight: &[f32], dy: &[f32], n_embd: usize) -> (Vec<f32>, Vec<f32>) {
    let (rows, vocab) = (x.len() / n_embd, weight.len() / n_embd);
    let dx = multiply([rows, n_embd, vocab], View::rows(dy, vocab), View::rows(weight, n_embd), None);
    let dweight = multiply([vocab, n_embd, rows], View::transposed(dy, vocab), View::rows(x, n_embd), None);
    (dx, dweight)
}

/// Sum over the rows of a matrix with `n` columns, in an order that the number of threads does not change.
fn column_sums(x: &[f32], n: usize) -> Vec<f32> {
    let partial: Vec<Vec<f32>> = x
        .par_chunks(64 * n)
        .map(|rows| {
            let mut sums = vec![0.0; n];
            rows.chunks_exact(n).for_each(|row| add(&mut sums, row));
            sums
        })
        .collect();
    let mut total = vec![0.0; n];
    partial.iter().for_each(|sums| add(&mut total, sums));
    total
}

/// Columns one task of a one-row product takes: a multiple of a cache line, few enough to share them evenly.
fn share(n: usize) -> usize {
    n.div_ceil(rayon::current_num_threads()).next_multiple_of(64)
}

fn one_row(x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let n = bias.len();
    let mut y = bias.to_vec();
    let share = share(n);
    y.par_chunks_mut(share).enumerate().for_each(|(i, y)| add_scaled_rows(x, weight, n, i * share, y));
    y
}

fn one_row_transposed(x: &[f32], weight: &[f32]) -> Vec<f32> {
    let mut y = unfilled(weight.len() / x.len());
    let share = share(y.len()).max(1);
    y.par_chunks_mut(share).zip(weight.par_chunks(share * x.len())).for_each(|(y, weight)| dot_rows(x, weight, y));
    y
}

simd_versions! {
    // y += sum over k of x[k] * (columns first.. of row k): four rows at a time, so that y is read and written less.
    fn add_scaled_rows(x: &[f32], weight: &[f32], n: usize, first: usize, y: &mut [f32]) {
        let width = y.len();
        let row = |k: usize| &weight[k * n + first..][..width];
        let whole = x.len() - x.len() % 4;
        for k in (0..whole).step_by(4) {
            let (a, b, c, d) = (row(k), row(k + 1), row(k + 2), row(k + 3));
            for j in 0..width {
                y[j] += x[k] * a[j] + x[k + 1] * b[j] + (x[k + 2] * c[j] + x[k + 3] * d[j]);
            }
        }
        for (k, x) in x.iter().enumerate().skip(whole) {
            for (y, a) in y.iter_mut().zip(row(k)) {
                *y += x * a;
            }
        }
    }

    // y[r] = x . row r: eight rows at a time, so that several loads are under way.
    fn dot_rows(x: &[f32], weight: &[f32], y: &mut [f32]) {
        let n = x.len();
        let whole = n - n % 16;
        let mut rows = weight.chunks_exact(8 * n);
        let mut out = y.chunks_exact_mut(8);
        for (rows, y) in (&mut rows).zip(&mut out) {
            let mut sums = [[0f32; 16]; 8];
            for i in (0..whole).step_by(16) {
                let x = &x[i..][..16];
                for (r, sums) in sums.iter_mut().enumerate() {
                    let row = &rows[r * n + i..][..16];
                    for lane in 0..16 {
                        sums[lane] = x[lane].mul_add(row[lane], sums[lane]);
                    }
                }
            }
            for (r, (y, sums)) in y.iter_mut().zip(&sums).enumerate() {
                *y = sums.iter().sum::<f32>() + (whole..n).map(|i| x[i] * rows[r * n + i]).sum::<f32>();
            }
        }
        for (row, y) in rows.remainder().chunks_exact(n).zip(out.into_remainder()) {
            *y = super::super::simd::sum([x, row], |[x, w]| x * w);
        }
    }
}
