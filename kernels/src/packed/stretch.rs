//! A stretch of a panel: how it stores weights, converts them from and to float32, and multiplies
//! them. Here in float32 and bfloat16; 8 bits are in `int8.rs`.

use std::borrow::Cow;

use burn::tensor::bf16;
use bytemuck::Pod;

use super::pairs::Pairs;
use crate::halves::{narrow_bf16, widened};

/// Columns of a panel: the accumulators of one row fill four AVX-512 registers, which hides the
/// latency of additions.
pub const PANEL: usize = 64;

/// `PANEL` columns of one row of weights, or of a group of rows with shared scales.
pub trait Stretch: Pod + Send + Sync {
    /// Rows of weights in a stretch.
    const ROWS: usize;

    /// The other factor's values for one stretch, in the product's format.
    type Input: Copy + Send + Sync;

    /// Stores `ROWS` rows.
    fn store(&mut self, rows: &[[f32; PANEL]]);

    /// One weight.
    fn weight(&self, row: usize, column: usize) -> f32;

    /// Converts rows of `n_in` values to inputs, one for each stretch of a panel.
    fn inputs(x: &[f32], n_in: usize) -> Cow<'_, [Self::Input]>;

    /// Adds the weights of `C` columns, from column `first` on, times `x[r]` to `sums[r]`; `first`
    /// is a multiple of `C`, and `C` of [`COLUMNS`](super::pairs::COLUMNS).
    ///
    /// # Safety
    /// The processor must have the instructions of `P`, and the caller be compiled for them.
    unsafe fn add_products<P: Pairs, const R: usize, const C: usize>(
        &self,
        first: usize,
        x: [&Self::Input; R],
        sums: &mut [[f32; C]; R],
    );
}

/// `sums[r] += x[r] * weights`
#[inline(always)]
fn add_row<const R: usize, const C: usize>(weights: &[f32; C], x: [&f32; R], sums: &mut [[f32; C]; R]) {
    for (x, sums) in x.into_iter().zip(sums) {
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum = x.mul_add(*weight, *sum);
        }
    }
}

/// A row in float32.
pub type F32Row = [f32; PANEL];

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
    unsafe fn add_products<P: Pairs, const R: usize, const C: usize>(
        &self,
        first: usize,
        x: [&f32; R],
        sums: &mut [[f32; C]; R],
    ) {
        add_row(&self.as_chunks().0[first / C], x, sums);
    }
}

/// A row in bfloat16.
pub type Bf16Row = [bf16; PANEL];

impl Stretch for Bf16Row {
    const ROWS: usize = 1;
    type Input = f32;

    fn store(&mut self, rows: &[[f32; PANEL]]) {
        narrow_bf16(&rows[0], self);
    }

    fn weight(&self, _row: usize, column: usize) -> f32 {
        widened(self[column])
    }

    fn inputs(x: &[f32], _n_in: usize) -> Cow<'_, [f32]> {
        Cow::Borrowed(x)
    }

    #[inline(always)]
    unsafe fn add_products<P: Pairs, const R: usize, const C: usize>(
        &self,
        first: usize,
        x: [&f32; R],
        sums: &mut [[f32; C]; R],
    ) {
        add_row(&self.as_chunks().0[first / C].map(widened), x, sums);
    }
}
