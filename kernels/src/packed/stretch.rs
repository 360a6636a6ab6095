//! How a stretch of a panel stores its weights, from float32 and back, and what a product does with
//! them: float32 and bfloat16; 8 bits are in `int8.rs`.

use std::borrow::Cow;

use super::PANEL;
use super::pairs::Pairs;
use crate::arena::Bits;
use crate::simd_versions;

/// `PANEL` columns of one row of weights, or of some rows that share something.
pub trait Stretch: Bits {
    /// Rows of weights that it holds.
    const ROWS: usize;

    /// As many values of a product's other factor, as the product reads them.
    type Input: Copy + Send + Sync;

    /// Stores `rows`, `ROWS` of them.
    fn store(&mut self, rows: &[[f32; PANEL]]);

    /// One weight.
    fn weight(&self, row: usize, column: usize) -> f32;

    /// Rows of `n_in` values as inputs, one for each stretch of a panel.
    fn inputs(x: &[f32], n_in: usize) -> Cow<'_, [Self::Input]>;

    /// Adds its weights times `x[r]` to `sums[r]`.
    ///
    /// # Safety
    /// The processor must have the instructions of `P`, and the caller be compiled for them.
    unsafe fn add_products<P: Pairs, const R: usize>(&self, x: [&Self::Input; R], sums: &mut [[f32; PANEL]; R]);
}

/// `sums[r] += x[r] * weights`
#[inline(always)]
fn add_row<const R: usize>(weights: &[f32; PANEL], x: [&f32; R], sums: &mut [[f32; PANEL]; R]) {
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
    type Input = f32;

    fn store(&mut self, rows: &[[f32; PANEL]]) {
        *self = rows[0];
    }

    fn weight(&self, _row: usize, column: usize) -> f32 {
        self[column]
    }

    fn inputs(x: &[f32], _n_in: usize) -> Cow<'_, [f32]> {
        Cow::Borrowed(x)
    }

    #[inline(always)]
    unsafe fn add_products<P: Pairs, const R: usize>(&self, x: [&f32; R], sums: &mut [[f32; PANEL]; R]) {
        add_row(self, x, sums);
    }
}

/// A row in bfloat16: the upper halves of float32.
pub type Bf16Row = [u16; PANEL];

// SAFETY: numbers.
unsafe impl Bits for Bf16Row {}

#[inline(always)]
pub(super) fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16, ties to even.
#[inline(always)]
fn narrow(value: f32) -> u16 {
    half::bf16::from_f32(value).to_bits()
}

impl Stretch for Bf16Row {
    const ROWS: usize = 1;
    type Input = f32;

    fn store(&mut self, rows: &[[f32; PANEL]]) {
        narrow_row(&rows[0], self);
    }

    fn weight(&self, _row: usize, column: usize) -> f32 {
        widen(self[column])
    }

    fn inputs(x: &[f32], _n_in: usize) -> Cow<'_, [f32]> {
        Cow::Borrowed(x)
    }

    #[inline(always)]
    unsafe fn add_products<P: Pairs, const R: usize>(&self, x: [&f32; R], sums: &mut [[f32; PANEL]; R]) {
        add_row(&self.map(widen), x, sums);
    }
}

simd_versions! {
    fn narrow_row(row: &[f32; PANEL], bits: &mut [u16; PANEL]) {
        for (bits, value) in bits.iter_mut().zip(row) {
            *bits = narrow(*value);
        }
    }
}
