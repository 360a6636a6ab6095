//! Newton and Schulz's iteration on the CPU: a matrix with its singular values brought near 1, its
//! singular vectors kept.
//!
//! Each round puts the singular values through `p(x) = 3.4445 x - 4.7750 x³ + 2.0315 x⁵`, an odd
//! polynomial that lifts small ones quickly and then moves about 1, between 0.7 and 1.2 ([Jordan et
//! al. 2024](https://kellerjordan.github.io/posts/muon/)).

use crate::gemm::{Matrix, add_product};
use crate::simd;

/// Rounds.
pub const STEPS: usize = 5;
/// The polynomial's coefficients of `x`, `x³` and `x⁵`.
pub const X: f32 = 3.4445;
/// See [`X`].
pub const X3: f32 = -4.7750;
/// See [`X`].
pub const X5: f32 = 2.0315;
/// What the norm is taken for where it is smaller: the orthogonalisation of nothing is nothing.
pub const SMALLEST_NORM: f32 = 1e-7;

/// Orthogonalises `x`, with `columns` columns stored row after row.
pub fn orthogonalise(x: &mut Vec<f32>, columns: usize) {
    let rows = x.len() / columns;
    // By Frobenius' norm, so that no singular value is above 1.
    let square: f64 = x.chunks(columns).map(|row| f64::from(simd::sum([row], |[x]| x * x))).sum();
    let scale = 1.0 / (square.sqrt() as f32).max(SMALLEST_NORM);
    x.iter_mut().for_each(|value| *value *= scale);

    let is_wide = rows <= columns;
    let side = rows.min(columns);
    let mut gram = vec![0.0; side * side];
    let mut next = vec![0.0; x.len()];
    for _ in 0..STEPS {
        // Over the shorter side: x xᵀ from the left, or xᵀ x from the right.
        let matrix = Matrix::new(x, columns);
        if is_wide {
            add_product(&mut gram, 0.0, matrix, matrix.transposed(), 1.0);
        } else {
            add_product(&mut gram, 0.0, matrix.transposed(), matrix, 1.0);
        }
        let square = Matrix::new(&gram, side);
        let mut polynomial = gram.clone();
        add_product(&mut polynomial, X3, square, square, X5);
        let polynomial = Matrix::new(&polynomial, side);
        next.copy_from_slice(x);
        if is_wide {
            add_product(&mut next, X, polynomial, matrix, 1.0);
        } else {
            add_product(&mut next, X, matrix, polynomial, 1.0);
        }
        std::mem::swap(x, &mut next);
    }
}
