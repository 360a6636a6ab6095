//! Products of matrices that lie in slices, for code that has no tensors: what the optimizer does with its weights.

use super::{Threads, View, product};

/// A matrix inside a slice, to read.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    /// Rows and columns.
    size: [usize; 2],
    /// Values from one row to the next, and from one column to the next.
    step: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// A matrix with `columns` columns that is stored row after row.
    pub fn new(values: &'a [f32], columns: usize) -> Self {
        assert_eq!(values.len() % columns, 0, "rows of {columns} values");
        Self { values, size: [values.len() / columns, columns], step: [columns, 1] }
    }

    /// The same values with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        let ([rows, columns], [row, column]) = (self.size, self.step);
        Self { size: [columns, rows], step: [column, row], ..self }
    }
}

/// `c = alpha c + beta a b`, with `a` `[m, k]`, `b` `[k, n]` and `c` `[m, n]`, stored row after row. The bits do not depend on
/// the number of threads.
pub fn add_product(c: &mut [f32], alpha: f32, a: Matrix, b: Matrix, beta: f32) {
    let ([m, k], [b_rows, n]) = (a.size, b.size);
    assert_eq!((b_rows, c.len()), (k, m * n), "sizes of a product");
    if alpha != 0.0 && alpha != 1.0 {
        c.iter_mut().for_each(|value| *value *= alpha);
    }
    let scaled: Vec<f32>;
    let b_values = if beta == 1.0 {
        b.values
    } else {
        scaled = b.values.iter().map(|value| beta * value).collect();
        &scaled
    };
    let view = |values: &[f32], [row, column]: [usize; 2]| View { start: values.as_ptr(), row, column };
    let result = View { start: c.as_mut_ptr(), row: n, column: 1 };
    // SAFETY: each matrix lies inside its slice, by the constructor and the assertion above.
    unsafe { product([m, n, k], result, alpha != 0.0, view(a.values, a.step), view(b_values, b.step), Threads::All) };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn adds_the_product_by_its_definition(
            m in 1usize..9, n in 1usize..9, k in 1usize..9, alpha in -2.0f32..2.0, beta in -2.0f32..2.0, fresh in prop::bool::ANY,
        ) {
            let alpha = if fresh { 0.0 } else { alpha };
            let value = |i: usize| ((i * 37 + 11) % 23) as f32 / 23.0 - 0.5;
            let a: Vec<f32> = (0..m * k).map(value).collect();
            let b: Vec<f32> = (0..n * k).map(|i| value(i + 5)).collect(); // the transpose of what is multiplied with
            let before: Vec<f32> = (0..m * n).map(|i| value(i + 9)).collect();
            let mut c = before.clone();
            add_product(&mut c, alpha, Matrix::new(&a, k), Matrix::new(&b, k).transposed(), beta);
            for row in 0..m {
                for column in 0..n {
                    let dot: f32 = (0..k).map(|i| a[row * k + i] * b[column * k + i]).sum();
                    let want = alpha * before[row * n + column] + beta * dot;
                    prop_assert!((c[row * n + column] - want).abs() < 1e-5);
                }
            }
        }
    }
}
