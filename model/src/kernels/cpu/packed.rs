//! Products of rows with packed weights ([`crate::packed`]), few in decoding and many in a prefill: each panel of weights is
//! read from memory once and meets the rows in small batches, whose sums stay in registers. A row's numbers depend neither on
//! the rows beside it nor on the number of threads.

use rayon::prelude::*;

use super::tensor::unfilled;
use crate::packed::{Bf16Row, F32Row, Int8Rows, PANEL, Packed, Stretch, WeightType};
use crate::simd_versions;

/// Rows whose sums fit into AVX-512's registers beside the weights.
const BATCH: usize = 6;

/// Rows that one task takes: their sums stay in the first-level cache.
const MOST_ROWS: usize = 8 * BATCH;

/// Multiplications that are worth a task of their own.
const WORTH_SHARING: usize = 1 << 17;

/// `x W + b`, on top of `residual` `[rows, n_out]` where it is given: x `[rows, n_in]`.
pub fn product(x: &[f32], weight: &Packed, residual: Option<&[f32]>) -> Vec<f32> {
    match weight.weights() {
        WeightType::F32 => by_panels::<F32Row>(x, weight, residual, f32_panel),
        WeightType::Bf16 => by_panels::<Bf16Row>(x, weight, residual, bf16_panel),
        WeightType::Int8 => by_panels::<Int8Rows>(x, weight, residual, int8_panel),
    }
}

/// Where the tasks write, each its own rows of its own panel.
#[derive(Clone, Copy)]
struct Output(*mut f32);

// SAFETY: the tasks write to different places.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

impl Output {
    /// # Safety
    /// The piece must lie inside the vector and be no other task's.
    unsafe fn piece<'a>(self, start: usize, length: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), length) }
    }
}

type PanelProduct<S> = fn(&[f32], usize, &[S], &mut [[f32; PANEL]]);

fn by_panels<S: Stretch>(
    x: &[f32],
    weight: &Packed,
    residual: Option<&[f32]>,
    panel_product: PanelProduct<S>,
) -> Vec<f32> {
    let [n_in, n_out] = weight.size();
    let mut y = unfilled(x.len() / n_in * n_out);
    let output = Output(y.as_mut_ptr());
    let panels: Vec<&[S]> = weight.panels().collect();
    let blocks: Vec<&[f32]> = x.chunks(MOST_ROWS * n_in).collect();
    let work = n_in * PANEL * (x.len() / n_in).min(MOST_ROWS);
    // The blocks of a panel follow one another, so that its weights are still in a cache for the second.
    (0..panels.len() * blocks.len()).into_par_iter().with_min_len((WORTH_SHARING / work).max(1)).for_each(|task| {
        let (panel, block) = (task / blocks.len(), task % blocks.len());
        let x = blocks[block];
        let mut sums = [[0f32; PANEL]; MOST_ROWS];
        let sums = &mut sums[..x.len() / n_in];
        panel_product(x, n_in, panels[panel], sums);
        let first = panel * PANEL;
        let width = PANEL.min(n_out - first);
        for (row, sums) in sums.iter().enumerate() {
            let start = (block * MOST_ROWS + row) * n_out + first;
            // SAFETY: this task's columns of a row of y.
            let y = unsafe { output.piece(start, width) };
            y.copy_from_slice(&sums[..width]);
            if let Some(bias) = weight.bias() {
                add(y, &bias[first..]);
            }
            if let Some(residual) = residual {
                add(y, &residual[start..]);
            }
        }
    });
    y
}

fn add(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
}

simd_versions! {
    fn f32_panel(x: &[f32], n_in: usize, panel: &[F32Row], sums: &mut [[f32; PANEL]]) {
        in_batches(x, n_in, panel, sums);
    }

    fn bf16_panel(x: &[f32], n_in: usize, panel: &[Bf16Row], sums: &mut [[f32; PANEL]]) {
        in_batches(x, n_in, panel, sums);
    }

    fn int8_panel(x: &[f32], n_in: usize, panel: &[Int8Rows], sums: &mut [[f32; PANEL]]) {
        in_batches(x, n_in, panel, sums);
    }
}

#[inline(always)]
fn in_batches<S: Stretch>(x: &[f32], n_in: usize, panel: &[S], sums: &mut [[f32; PANEL]]) {
    for (x, sums) in x.chunks(BATCH * n_in).zip(sums.chunks_mut(BATCH)) {
        match sums.len() {
            1 => batch::<1, S>(x, n_in, panel, sums),
            2 => batch::<2, S>(x, n_in, panel, sums),
            3 => batch::<3, S>(x, n_in, panel, sums),
            4 => batch::<4, S>(x, n_in, panel, sums),
            5 => batch::<5, S>(x, n_in, panel, sums),
            _ => batch::<BATCH, S>(x, n_in, panel, sums),
        }
    }
}

#[inline(always)]
fn batch<const R: usize, S: Stretch>(x: &[f32], n_in: usize, panel: &[S], into: &mut [[f32; PANEL]]) {
    let x: [&[f32]; R] = std::array::from_fn(|row| &x[row * n_in..][..n_in]);
    let mut sums = [[0f32; PANEL]; R];
    for (i, stretch) in panel.iter().enumerate() {
        let rows = i * S::ROWS..n_in.min((i + 1) * S::ROWS);
        stretch.add_products(x.map(|x| &x[rows.clone()]), &mut sums);
    }
    // A length known here: otherwise the compiler keeps the sums in memory all along, at a third of the speed.
    into[..R].copy_from_slice(&sums);
}
