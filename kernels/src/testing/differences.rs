//! The comparison of computed numbers, for the tests of this crate and, by its path, of others.

use itertools::Itertools;

/// The largest difference; infinite if either list holds NaN, which `f32::max` would ignore.
pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    let differences = a.iter().zip_eq(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |most: f32, next| if next.is_nan() { f32::INFINITY } else { most.max(next) })
}
