//! The best token of each row of logits, so that decoding need not read all logits back.
//!
//! Online softmax ([Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867), section 3): the
//! largest logit so far and the sum of the exponentials relative to it.

use crate::gpu::finite::{LOWEST, is_finite, is_nan_or_plus_infinity};
use crate::gpu::prelude::*;

/// Units of a cube.
const UNITS: usize = crate::gpu::launch::UNITS as usize;
/// Steps of a cube's tree reduction.
const HALVINGS: usize = UNITS.ilog2() as usize;
/// Parts of a row, one for each cube, so that a single row keeps many cubes busy.
const PARTS: usize = 32;

/// Id of no logit: the largest number of 24 bits, which float32 represents exactly.
const NONE: u32 = 0xff_ffff;

/// The result over some of a row's logits.
#[derive(CubeType, Clone, Copy)]
struct Best {
    /// Id of the largest logit, the lowest among equal ones.
    id: u32,
    /// The largest logit.
    logit: f32,
    /// The sum of `exp(x - logit)` over all logits `x`.
    sum: f32,
}

#[cube]
impl Best {
    fn none() -> Best {
        Best { id: NONE, logit: f32::new(LOWEST), sum: f32::new(0.0) }
    }

    fn merge(&mut self, id: u32, logit: f32, sum: f32) {
        let first = self.logit > logit || (self.logit == logit && self.id < id);
        let largest = max(self.logit, logit);
        self.sum = self.sum * (self.logit - largest).exp() + sum * (logit - largest).exp();
        self.id = select(first, self.id, id);
        self.logit = largest;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn parts_kernel(logits: &[f32], parts: &mut [f32], rows: usize, vocab: usize, infinity: f32) {
    let mut ids = Shared::<[u32]>::new_slice(UNITS);
    let mut largest = Shared::<[f32]>::new_slice(UNITS);
    let mut sums = Shared::<[f32]>::new_slice(UNITS);
    if CUBE_POS >= rows * PARTS {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let row = CUBE_POS / PARTS;
    let length = vocab.div_ceil(PARTS);
    let first = CUBE_POS % PARTS * length;
    let end = min(first + length, vocab);
    let mut best = Best::none();
    let mut id = first + unit;
    while id < end {
        let logit = logits[row * vocab + id];
        // NaN and infinity make the sum non-finite, and are not compared.
        let is_invalid = is_nan_or_plus_infinity(logit);
        let (logit, sum) = (select(is_invalid, f32::new(0.0), logit), select(is_invalid, infinity, f32::new(1.0)));
        best.merge(id as u32, logit, sum);
        id += UNITS;
    }
    #[unroll]
    for step in 0..HALVINGS {
        let half = comptime!(UNITS >> (step + 1));
        ids[unit] = best.id;
        largest[unit] = best.logit;
        sums[unit] = best.sum;
        sync_cube();
        if unit < half {
            let other = unit + half;
            best.merge(ids[other], largest[other], sums[other]);
        }
        sync_cube();
    }
    if unit == 0 {
        parts[CUBE_POS * 3] = f32::cast_from(best.id);
        parts[CUBE_POS * 3 + 1] = best.logit;
        parts[CUBE_POS * 3 + 2] = best.sum;
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn best_kernel(parts: &[f32], best: &mut [f32], rows: usize, infinity: f32) {
    if ABSOLUTE_POS < rows {
        let mut all = Best::none();
        for part in 0..PARTS {
            let place = (ABSOLUTE_POS * PARTS + part) * 3;
            all.merge(u32::cast_from(parts[place]), parts[place + 1], parts[place + 2]);
        }
        best[ABSOLUTE_POS * 3] = f32::cast_from(all.id);
        best[ABSOLUTE_POS * 3 + 1] = all.logit;
        let has_a_logarithm = is_finite(all.sum) && all.sum > f32::new(0.0);
        best[ABSOLUTE_POS * 3 + 2] = select(has_a_logarithm, all.logit + all.sum.ln(), infinity);
    }
}

/// For each row of `logits` `[rows, vocab]`, the id of its largest value, that value, and the row's
/// log-sum-exp: `[rows, 3]` in float32, which is exact for ids below 2^24. The log-sum-exp is not
/// finite if the row contains NaN or plus infinity.
pub fn argmax(logits: CubeTensor) -> CubeTensor {
    let logits = float32(logits);
    let [rows, vocab] = rows_and_width(&logits);
    let parts = unfilled(&logits, [rows * PARTS, 3], DType::F32);
    let best = unfilled(&logits, [rows, 3], DType::F32);
    let (of_parts, of_rows) = (Grid::cubes(&[&logits], rows * PARTS, UNITS), Grid::each(&[&logits], rows));
    // SAFETY: the kernels check every index against `rows` and `vocab`.
    unsafe {
        launch!(parts_kernel, of_parts, [logits, &parts], rows, vocab, f32::INFINITY);
        launch!(best_kernel, of_rows, [parts, &best], rows, f32::INFINITY);
    }
    best
}
