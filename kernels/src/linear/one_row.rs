//! Products of one row with unpacked weights, for generation during training: memory bandwidth is
//! the limit. Inference packs its weights instead ([`crate::packed`]).

use rayon::prelude::*;

use crate::{fill::unfilled, simd, simd_versions};

/// Columns per task of a one-row product: a multiple of a cache line, shared evenly among the
/// threads.
fn share(n: usize) -> usize {
    n.div_ceil(rayon::current_num_threads()).next_multiple_of(64)
}

/// `y += x W` of one row.
pub fn add_one_row(y: &mut [f32], x: &[f32], weight: &[f32]) {
    let (n, share) = (y.len(), share(y.len()));
    y.par_chunks_mut(share).enumerate().for_each(|(i, y)| add_scaled_rows(x, weight, n, i * share, y));
}

/// `x Wᵀ` of one row.
pub fn one_row_transposed(x: &[f32], weight: &[f32]) -> Vec<f32> {
    let mut y = unfilled(weight.len() / x.len());
    let share = share(y.len()).max(1);
    y.par_chunks_mut(share).zip(weight.par_chunks(share * x.len())).for_each(|(y, weight)| dot_rows(x, weight, y));
    y
}

simd_versions! {
    // y += sum over k of x[k] * (columns from `first` of row k): four rows at a time, so that y is
    // read and written less often.
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

    // y[r] = x . row r: eight rows at a time, so that several loads are in flight.
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
            *y = simd::sum([x, row], |[x, w]| x * w);
        }
    }
}
