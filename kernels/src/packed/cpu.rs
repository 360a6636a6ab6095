//! Products of rows with packed weights ([`crate::packed`]), few rows in decoding and many in a
//! prefill. Each panel of weights is read from memory once and multiplied with small batches of
//! rows, whose accumulators stay in registers. A row's results do not depend on the other rows, or
//! on the number of threads.

use std::hint::black_box;

use super::matrix::{Packed, WeightType};
use super::stretch::{Bf16Row, F32Row, PANEL, Stretch};
use super::{int8::Int8Rows, pairs::Pairs};
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx512Vnni, has_vnni};
use crate::{cpu::prefetch::NEXT_WEIGHTS, cpu::prelude::*, cpu::shared::Shared};

/// Rows whose accumulators fit into AVX-512's registers beside the weights.
const BATCH: usize = 6;

/// Columns of a panel whose accumulators for a batch fit into AVX2's registers.
const PART: usize = 16;

/// Bytes of a block of weights that stays in the first-level cache while its columns are read in
/// parts.
const BLOCK_BYTES: usize = 8 << 10;

/// Rows per task: their sums stay in the first-level cache.
const MAX_ROWS: usize = 8 * BATCH;

/// Multiplications that are worth a task.
const WORTH_SHARING: usize = 1 << 17;

/// `x W + b`, plus `residual` `[rows, n_out]` if given: x `[rows, n_in]`.
pub fn product(x: &[f32], weight: &Packed, residual: Option<&[f32]>) -> Vec<f32> {
    match weight.weight_type {
        WeightType::F32 => by_panels::<F32Row>(x, weight, residual),
        WeightType::Bf16 => by_panels::<Bf16Row>(x, weight, residual),
        WeightType::Int8 => by_panels::<Int8Rows>(x, weight, residual),
    }
}

fn by_panels<S: Stretch>(x: &[f32], weight: &Packed, residual: Option<&[f32]>) -> Vec<f32> {
    let [n_in, n_out] = weight.size;
    NEXT_WEIGHTS.announce(weight.part.next());
    let mut y = unfilled(x.len() / n_in * n_out);
    let output = Shared::new(&mut y);
    let panels: Vec<&[S]> = weight.panels().collect();
    let inputs = S::inputs(x, n_in);
    let per_panel = n_in.div_ceil(S::ROWS);
    let blocks: Vec<&[S::Input]> = inputs.chunks(MAX_ROWS * per_panel).collect();
    let work = n_in * PANEL * (x.len() / n_in).min(MAX_ROWS);
    // The blocks of a panel are consecutive tasks, so that its weights are still in a cache for the
    // second one.
    let tasks = (0..panels.len() * blocks.len()).into_par_iter().with_min_len((WORTH_SHARING / work.max(1)).max(1));
    let room_for_sums = || [[0.0; PANEL]; BATCH];
    tasks.for_each_init(room_for_sums, |done, task| {
        let (panel, block) = (task / blocks.len(), task % blocks.len());
        let x = blocks[block];
        let first = panel * PANEL;
        let width = PANEL.min(n_out - first);
        let mut epilogue = |row: usize, sums: &[f32; PANEL]| {
            let start = (block * MAX_ROWS + row) * n_out + first;
            // SAFETY: this task's columns of a row of y.
            let y = unsafe { output.piece(start, width) };
            y.copy_from_slice(&sums[..width]);
            if let Some(bias) = &weight.bias {
                simd::add(y, &bias[first..]);
            }
            if let Some(residual) = residual {
                simd::add(y, &residual[start..]);
            }
        };
        panel_product(x, panels[panel], done, &mut epilogue);
    });
    y
}

/// The epilogue of a row's sums.
type Epilogue<'a> = &'a mut dyn FnMut(usize, &[f32; PANEL]);

/// The product of rows of inputs with a panel; `done` is a buffer for the sums of a batch.
fn panel_product<S: Stretch>(x: &[S::Input], panel: &[S], done: &mut [[f32; PANEL]; BATCH], epilogue: Epilogue) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512vnni,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
        unsafe fn vnni<S: Stretch>(x: &[S::Input], panel: &[S], done: &mut [[f32; PANEL]; BATCH], epilogue: Epilogue) {
            // SAFETY: compiled for these instructions.
            unsafe { batches::<S, Avx512Vnni>(x, panel, done, epilogue) };
        }
        if has_vnni() {
            // SAFETY: the processor has these instructions.
            return unsafe { vnni(x, panel, done, epilogue) };
        }
    }
    // SAFETY: it has no requirements beyond the instructions.
    unsafe { without_vnni(x, panel, done, epilogue) };
}

simd_versions! {
    unsafe fn without_vnni<P: Pairs, S: Stretch>(
        x: &[S::Input],
        panel: &[S],
        done: &mut [[f32; PANEL]; BATCH],
        epilogue: Epilogue,
    ) {
        // SAFETY: compiled for the instructions of `P`.
        unsafe { batches::<S, P>(x, panel, done, epilogue) };
    }
}

/// [`panel_product`], batch after batch of rows.
///
/// # Safety
/// As [`batch`].
#[inline(always)]
unsafe fn batches<S: Stretch, P: Pairs>(
    x: &[S::Input],
    panel: &[S],
    done: &mut [[f32; PANEL]; BATCH],
    epilogue: Epilogue,
) {
    for (number, x) in x.chunks(BATCH * panel.len()).enumerate() {
        let first = number * BATCH;
        // SAFETY: the caller's promise.
        unsafe {
            match x.len() / panel.len() {
                1 => batch::<1, S, P>(x, panel, first, done, epilogue),
                2 => batch::<2, S, P>(x, panel, first, done, epilogue),
                3 => batch::<3, S, P>(x, panel, first, done, epilogue),
                4 => batch::<4, S, P>(x, panel, first, done, epilogue),
                5 => batch::<5, S, P>(x, panel, first, done, epilogue),
                _ => batch::<BATCH, S, P>(x, panel, first, done, epilogue),
            }
        }
    }
}

/// The products of `R` rows, from row `first` on, with a panel.
///
/// # Safety
/// The processor must have the instructions of `P`, and the caller be compiled for them.
#[inline(always)]
unsafe fn batch<const R: usize, S: Stretch, P: Pairs>(
    x: &[S::Input],
    panel: &[S],
    first: usize,
    done: &mut [[f32; PANEL]; BATCH],
    epilogue: Epilogue,
) {
    let x: [&[S::Input]; R] = std::array::from_fn(|row| &x[row * panel.len()..][..panel.len()]);
    if R == 1 || P::KEEPS_PANEL {
        let mut sums = [[0f32; PANEL]; R];
        for (i, stretch) in panel.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { stretch.add_products::<P, R, PANEL>(0, x.map(|x| &x[i]), &mut sums) };
        }
        // Copied to `done`, because accumulators that are passed to another function would stay in
        // memory, at a third of the speed. So would accumulators copied to a local array, which the
        // compiler merges with them.
        done[..R].copy_from_slice(&sums);
    } else {
        // SAFETY: the caller's promise.
        unsafe { in_parts::<R, S, P>(x, panel, done) };
    }
    done[..R].iter().enumerate().for_each(|(row, sums)| epilogue(first + row, sums));
}

/// The same in parts of the columns, whose accumulators need fewer registers, with a block of
/// weights that stays in the first-level cache meanwhile.
///
/// # Safety
/// As [`batch`].
#[inline(always)]
unsafe fn in_parts<const R: usize, S: Stretch, P: Pairs>(
    x: [&[S::Input]; R],
    panel: &[S],
    done: &mut [[f32; PANEL]; BATCH],
) {
    done[..R].fill([0.0; PANEL]);
    let block = (BLOCK_BYTES / size_of::<S>()).max(1);
    for (start, stretches) in (0..).step_by(block).zip(panel.chunks(block)) {
        let x = x.map(|x| &x[start..][..stretches.len()]);
        for first in (0..PANEL).step_by(PART) {
            // Hidden from the compiler, which would otherwise merge the parts and run out of
            // registers again.
            let first = black_box(first);
            let mut sums = [[0f32; PART]; R];
            sums.iter_mut().zip(&*done).for_each(|(sums, done)| sums.copy_from_slice(&done[first..][..PART]));
            for (i, stretch) in stretches.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { stretch.add_products::<P, R, PART>(first, x.map(|x| &x[i]), &mut sums) };
            }
            done.iter_mut().zip(&sums).for_each(|(done, sums)| done[first..][..PART].copy_from_slice(sums));
        }
    }
}
