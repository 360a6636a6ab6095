//! How a stretch of a panel stores its weights: the three types, from float32 and back, and what a product does with them.

use super::memory::Bits;
use super::{GROUP, PANEL};
use crate::simd_versions;

/// `PANEL` columns of one row of weights, or of some rows that share something.
pub trait Stretch: Bits {
    /// Rows of weights that it holds.
    const ROWS: usize;

    /// Stores `rows`, `ROWS` of them.
    fn store(&mut self, rows: &[[f32; PANEL]]);

    /// One weight.
    fn weight(&self, row: usize, column: usize) -> f32;

    /// Adds its weights times `x[r]`, a value for each of its rows (fewer where the matrix ends), to `sums[r]`.
    fn add_products<const R: usize>(&self, x: [&[f32]; R], sums: &mut [[f32; PANEL]; R]);
}

/// `sums[r] += x[r] * weights`
#[inline(always)]
fn add_row<const R: usize>(weights: &[f32; PANEL], x: [f32; R], sums: &mut [[f32; PANEL]; R]) {
    for (x, sums) in x.into_iter().zip(sums) {
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum = x.mul_add(*weight, *sum);
        }
    }
}

/// A row in float32.
pub type F32Row = [f32; PANEL];

// SAFETY: a number.
unsafe impl Bits for f32 {}
// SAFETY: numbers.
unsafe impl Bits for F32Row {}

impl Stretch for F32Row {
    const ROWS: usize = 1;

    fn store(&mut self, rows: &[[f32; PANEL]]) {
        *self = rows[0];
    }

    fn weight(&self, _row: usize, column: usize) -> f32 {
        self[column]
    }

    #[inline(always)]
    fn add_products<const R: usize>(&self, x: [&[f32]; R], sums: &mut [[f32; PANEL]; R]) {
        add_row(self, x.map(|x| x[0]), sums);
    }
}

/// A row in bfloat16: the upper halves of float32.
pub type Bf16Row = [u16; PANEL];

// SAFETY: numbers.
unsafe impl Bits for Bf16Row {}

#[inline(always)]
fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16, ties to even.
#[inline(always)]
fn narrow(value: f32) -> u16 {
    half::bf16::from_f32(value).to_bits()
}

impl Stretch for Bf16Row {
    const ROWS: usize = 1;

    fn store(&mut self, rows: &[[f32; PANEL]]) {
        narrow_row(&rows[0], self);
    }

    fn weight(&self, _row: usize, column: usize) -> f32 {
        widen(self[column])
    }

    #[inline(always)]
    fn add_products<const R: usize>(&self, x: [&[f32]; R], sums: &mut [[f32; PANEL]; R]) {
        add_row(&self.map(widen), x.map(|x| x[0]), sums);
    }
}

/// `GROUP` rows in 8 bits: a weight is a whole number from -127 to 127 times its column's scale.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Int8Rows {
    weights: [[i8; PANEL]; GROUP],
    /// In bfloat16.
    scales: [u16; PANEL],
}

// SAFETY: numbers, and no padding between them.
unsafe impl Bits for Int8Rows {}

impl Stretch for Int8Rows {
    const ROWS: usize = GROUP;

    fn store(&mut self, rows: &[[f32; PANEL]]) {
        quantise(rows, &mut self.weights, &mut self.scales);
    }

    fn weight(&self, row: usize, column: usize) -> f32 {
        f32::from(self.weights[row][column]) * widen(self.scales[column])
    }

    #[inline(always)]
    fn add_products<const R: usize>(&self, x: [&[f32]; R], sums: &mut [[f32; PANEL]; R]) {
        // The scale comes after the sum over the group: once instead of for every weight.
        let mut group = [[0f32; PANEL]; R];
        for (row, weights) in self.weights.iter().enumerate().take(x[0].len()) {
            add_row(&weights.map(f32::from), x.map(|x| x[row]), &mut group);
        }
        let scales = self.scales.map(widen);
        for (sums, group) in sums.iter_mut().zip(&group) {
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = scales[column].mul_add(group[column], *sum);
            }
        }
    }
}

simd_versions! {
    fn narrow_row(row: &[f32; PANEL], bits: &mut [u16; PANEL]) {
        for (bits, value) in bits.iter_mut().zip(row) {
            *bits = narrow(*value);
        }
    }

    // The scale brings a column's largest weight to 127. It is rounded up to a bfloat16, so that none goes beyond.
    fn quantise(rows: &[[f32; PANEL]], weights: &mut [[i8; PANEL]; GROUP], scales: &mut [u16; PANEL]) {
        let mut largest = [0f32; PANEL];
        for row in rows {
            for (largest, value) in largest.iter_mut().zip(row) {
                *largest = largest.max(value.abs());
            }
        }
        let mut inverse = [0f32; PANEL];
        for column in 0..PANEL {
            let scale = (largest[column] / 127.0).to_bits().wrapping_add(0xffff) >> 16;
            scales[column] = scale as u16;
            inverse[column] = if scale == 0 { 0.0 } else { 1.0 / f32::from_bits(scale << 16) };
        }
        for (row, weights) in rows.iter().zip(weights) {
            for column in 0..PANEL {
                weights[column] = (row[column] * inverse[column]).round_ties_even().clamp(-127.0, 127.0) as i32 as i8;
            }
        }
    }
}
