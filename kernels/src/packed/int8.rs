//! Weights in 8 bits, and their products, in integer arithmetic throughout a group: only that is
//! fast enough for memory's bandwidth. As float32, 16 weights cost three instructions (widen,
//! convert, multiply-add); as integers, 32 weights of two rows cost two (widen, multiply and add
//! pairs).
//!
//! For this the other factor is quantised to 16 bits, with one scale per [`GROUP`] values: an error
//! of at most 1/65,534 of the group's largest value, four tenths of a percent of the weights'
//! rounding error.

use std::borrow::Cow;

use burn::tensor::bf16;
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::pairs::{COLUMNS, PairOfRows, Pairs};
use super::stretch::{PANEL, Stretch};
use crate::{halves::widened, simd::prefetch, simd_versions};

/// Rows that share a scale.
pub const GROUP: usize = 32;

/// Some adjacent columns of a panel, from the first pair of rows to the last.
type Columns = [PairOfRows; GROUP / 2];

/// `GROUP` rows in 8 bits: a weight is an integer from -127 to 127 times its column's scale.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Int8Rows {
    weights: [Columns; PANEL / COLUMNS],
    scales: [bf16; PANEL],
}

/// `GROUP` values of a row in 16 bits: integers from -32,767 to 32,767 times a scale.
#[derive(Clone, Copy)]
pub struct Int16Group {
    values: [[i16; 2]; GROUP / 2],
    scale: f32,
}

impl Int16Group {
    /// Quantises at most `GROUP` values, padded with zeros.
    fn new(x: &[f32]) -> Self {
        let mut group = Self { values: [[0; 2]; GROUP / 2], scale: 0.0 };
        round(x, &mut group);
        group
    }

    /// One value.
    #[cfg(test)]
    pub fn value(&self, row: usize) -> f32 {
        f32::from(self.values[row / 2][row % 2]) * self.scale
    }
}

/// Prefetch distance in bytes, that of half a group of rows: a whole group's, or two groups', were
/// slower. The compiler reorders the reads of a group, so that hardware prefetchers see no pattern.
const AHEAD: usize = size_of::<Int8Rows>() / 2;

/// Rows of inputs that are worth a task.
const WORTH_SHARING: usize = 16;

impl Stretch for Int8Rows {
    const ROWS: usize = GROUP;
    type Input = Int16Group;

    fn store(&mut self, rows: &[[f32; PANEL]]) {
        quantise(rows, &mut self.weights, &mut self.scales);
    }

    fn weight(&self, row: usize, column: usize) -> f32 {
        f32::from(self.weights[column / COLUMNS][row / 2][column % COLUMNS][row % 2]) * widened(self.scales[column])
    }

    fn inputs(x: &[f32], n_in: usize) -> Cow<'_, [Int16Group]> {
        let rows = x.par_chunks(n_in).with_min_len(WORTH_SHARING);
        Cow::Owned(rows.flat_map_iter(|row| row.chunks(GROUP).map(Int16Group::new)).collect())
    }

    #[inline(always)]
    unsafe fn add_products<P: Pairs, const R: usize, const C: usize>(
        &self,
        first: usize,
        x: [&Int16Group; R],
        sums: &mut [[f32; C]; R],
    ) {
        // A group's sum stays below 32 * 127 * 32,767, which is less than 2^27.
        let mut group = [[0i32; C]; R];
        for (place, weights) in self.weights[first / COLUMNS..][..C / COLUMNS].iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let mut products = [P::zero(); R];
                for (pair, weights) in weights.iter().enumerate() {
                    if pair % 2 == 0 {
                        let ahead = weights.as_ptr().cast::<u8>().wrapping_add(AHEAD);
                        prefetch::<1, _>(ahead, 2 * size_of::<PairOfRows>());
                    }
                    let weights = P::widen(weights);
                    for (products, x) in products.iter_mut().zip(&x) {
                        *products = P::add_products(*products, weights, &x.values[pair]);
                    }
                }
                for (products, group) in products.into_iter().zip(&mut group) {
                    P::store(products, &mut group.as_chunks_mut().0[place]);
                }
            }
        }
        let scales: [f32; C] = self.scales.as_chunks().0[first / C].map(widened);
        for ((sums, group), x) in sums.iter_mut().zip(&group).zip(x) {
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = (scales[column] * x.scale).mul_add(group[column] as f32, *sum);
            }
        }
    }
}

simd_versions! {
    // The scale maps a column's largest weight to 127. It is rounded up to a bfloat16, so that no
    // weight exceeds 127. A weight that is not finite makes the scale NaN, so that the product does
    // not hide it: `max` ignores NaN, which would be stored as 0.
    fn quantise(rows: &[[f32; PANEL]], weights: &mut [Columns; PANEL / COLUMNS], scales: &mut [bf16; PANEL]) {
        let mut largest = [0f32; PANEL];
        let mut finite = [0f32; PANEL]; // 0 if all are finite, otherwise NaN
        for row in rows {
            for ((largest, finite), value) in largest.iter_mut().zip(&mut finite).zip(row) {
                *largest = largest.max(value.abs());
                *finite += value * 0.0;
            }
        }
        let mut inverse = [0f32; PANEL];
        for column in 0..PANEL {
            let scale = (largest[column] / 127.0).to_bits().wrapping_add(0xffff) >> 16;
            scales[column] = if finite[column].is_nan() { bf16::NAN } else { bf16::from_bits(scale as u16) };
            inverse[column] = if scale == 0 { 0.0 } else { 1.0 / f32::from_bits(scale << 16) };
        }
        for (pair, rows) in rows.chunks_exact(2).enumerate() {
            for column in 0..PANEL {
                let weights = &mut weights[column / COLUMNS][pair][column % COLUMNS];
                for (row, weight) in rows.iter().zip(weights) {
                    *weight = (row[column] * inverse[column]).round_ties_even().clamp(-127.0, 127.0) as i32 as i8;
                }
            }
        }
    }

    fn round(x: &[f32], group: &mut Int16Group) {
        let largest = x.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        group.scale = largest / 32767.0;
        // A non-finite value makes the scale NaN, so that the product does not hide it.
        if x.iter().any(|value| !value.is_finite()) {
            group.scale = f32::NAN;
        }
        let inverse = if largest > 0.0 { 32767.0 / largest } else { 0.0 };
        for (value, rounded) in x.iter().zip(group.values.as_flattened_mut()) {
            *rounded = (value * inverse).round_ties_even().clamp(-32767.0, 32767.0) as i32 as i16;
        }
    }
}
