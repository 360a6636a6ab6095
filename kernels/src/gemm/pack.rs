//! Packing: factors copied in the order in which microkernels read them.

use burn::tensor::bf16;

use super::{instructions::InstructionSet, matrix::View};
use crate::{halves::widened, simd::prefetch};

/// Rows of a tile. Times 4 vectors, its sums fill 24 of AVX-512's 32 registers, times 2 vectors 12
/// of AVX2's 16; the others hold the factors.
pub const PANEL_ROWS: usize = 6;

/// Bytes of a lane.
pub const LANE_BYTES: usize = 4;

/// Lanes in a cache line.
pub const LINE: usize = 16;

/// A cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct Line(#[allow(dead_code)] [u32; LINE]);

/// What microkernels multiply: 4 bytes that hold one value, or several that are adjacent in k.
pub trait Lane: 'static {
    /// The type of its values.
    type Value: Copy;
    /// Values in a lane.
    const VALUES: usize;
    /// Whether contiguous values are lanes without conversion.
    const AS_STORED: bool = true;

    /// A lane of `count` values, from 1 to [`Self::VALUES`], `stride` apart.
    ///
    /// # Safety
    /// The values must be readable and aligned.
    unsafe fn of(from: *const Self::Value, stride: usize, count: usize) -> u32;

    /// A vector of lanes from contiguous values.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`, and the caller be compiled for them; the
    /// values of `S::LANES` lanes must be readable and aligned.
    #[inline(always)]
    unsafe fn vector<S: InstructionSet>(from: *const Self::Value) -> S::Vector {
        let mut lanes = [0; 16];
        // SAFETY: the caller's promise; no vector is longer.
        unsafe {
            for (i, lane) in lanes.iter_mut().enumerate().take(S::LANES) {
                *lane = Self::of(from.add(i * Self::VALUES), 1, Self::VALUES);
            }
            S::load(lanes.as_ptr().cast())
        }
    }
}

/// A float32.
#[derive(Debug)]
pub enum F32Lane {}

impl Lane for F32Lane {
    type Value = f32;
    const VALUES: usize = 1;

    #[inline(always)]
    unsafe fn of(from: *const f32, _stride: usize, _count: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { from.read().to_bits() }
    }
}

/// A bfloat16 converted to float32, for processors that multiply no other type.
#[derive(Debug)]
pub enum WidenedLane {}

impl Lane for WidenedLane {
    type Value = bf16;
    const VALUES: usize = 1;
    const AS_STORED: bool = false;

    #[inline(always)]
    unsafe fn of(from: *const bf16, _stride: usize, _count: usize) -> u32 {
        // SAFETY: the caller's promise.
        widened(unsafe { from.read() }).to_bits()
    }
}

/// Two bfloat16.
#[derive(Debug)]
pub enum Bf16Lane {}

impl Lane for Bf16Lane {
    type Value = bf16;
    const VALUES: usize = 2;

    #[inline(always)]
    unsafe fn of(from: *const bf16, stride: usize, count: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let second = if count > 1 { from.add(stride).read().to_bits() } else { 0 };
            u32::from(from.read().to_bits()) | (u32::from(second) << 16)
        }
    }
}

/// Lanes that are copied at once from a row; those beyond the panel's rows are overwritten by the
/// next copy.
const AT_ONCE: usize = 8;

/// Lanes of a packed panel with `depth` lanes of k, with room for the copies of `AT_ONCE` lanes
/// that overrun its end.
pub fn panel_lanes(depth: usize) -> usize {
    depth * PANEL_ROWS + AT_ONCE
}

/// Packs `[rows, k]` of a, whose rows are contiguous, in the same order.
///
/// # Safety
/// These rows and columns of `a` must be readable, and `to` must have room for the rows' lanes,
/// `k.div_ceil(L::VALUES)` each, which nobody else reads or writes; all aligned for their types.
#[inline(always)]
pub unsafe fn in_rows<L: Lane>(a: &View<L::Value>, [rows, k]: [usize; 2], to: *mut u32) {
    let (whole, depth) = (k / L::VALUES, k.div_ceil(L::VALUES));
    for row in 0..rows {
        // SAFETY: the caller's promise: a is readable, and `to` has room for the rows of `depth`
        // lanes.
        unsafe {
            let (from, to) = (a.from(row, 0).start, to.add(row * depth));
            for p in 0..whole {
                to.add(p).write(L::of(from.add(p * L::VALUES), 1, L::VALUES));
            }
            for p in whole..depth {
                to.add(p).write(L::of(from.add(p * L::VALUES), 1, k - p * L::VALUES));
            }
        }
    }
}

/// Packs `[rows, k]` of a in panels of [`PANEL_ROWS`] rows, `panel` lanes apart; in a panel, the
/// rows' lanes are adjacent for each k.
///
/// # Safety
/// These rows and columns of `a` must be readable, and `to` must have room for
/// `rows.div_ceil(PANEL_ROWS)` panels, which nobody else reads or writes; all aligned for their
/// types. `panel` must be at least [`panel_lanes`] of the lanes in `k`.
#[inline(always)]
pub unsafe fn rows<L: Lane>(a: &View<L::Value>, [rows, k]: [usize; 2], to: *mut u32, panel: usize) {
    let depth = k.div_ceil(L::VALUES);
    // SAFETY: the caller's promise: a is readable, and `to` has room for its panels. A panel's
    // lanes are written in the order of k.
    unsafe {
        // Some of k at a time, so that cache lines read for one panel are still cached for the
        // next.
        for first in (0..depth).step_by(16) {
            let last = depth.min(first + 16);
            let whole = last.min(k / L::VALUES);
            for top in (0..rows).step_by(PANEL_ROWS) {
                let to = to.add(top / PANEL_ROWS * panel);
                let mut p = first;
                if a.row_stride == 1 && top + AT_ONCE <= rows {
                    let mut from = a.from(top, p * L::VALUES).start;
                    while p < whole {
                        let mut lanes = [0; AT_ONCE];
                        for (i, lane) in lanes.iter_mut().enumerate() {
                            *lane = L::of(from.add(i), a.column_stride, L::VALUES);
                        }
                        to.add(p * PANEL_ROWS).cast::<[u32; AT_ONCE]>().write_unaligned(lanes);
                        from = from.wrapping_add(a.column_stride * L::VALUES);
                        p += 1;
                    }
                }
                while p < last {
                    let here = (k - p * L::VALUES).min(L::VALUES);
                    for i in 0..PANEL_ROWS.min(rows - top) {
                        let from = a.from(top + i, p * L::VALUES).start;
                        to.add(p * PANEL_ROWS + i).write(L::of(from, a.column_stride, here));
                    }
                    p += 1;
                }
            }
        }
    }
}

/// Prefetch distance in rows of b: each row is on a different page, and hardware prefetchers do not
/// cross pages.
const AHEAD: usize = 16;

/// Packs `[k, columns]` of b, the columns of one panel: for each lane of k, the columns' adjacent
/// lanes, padded to a whole vector.
///
/// # Safety
/// The processor must have the instructions of `S`, and the caller be compiled for them. These rows
/// and columns of `b` must be readable, and `to` must have room for the columns, padded to whole
/// vectors, for each of `k.div_ceil(L::VALUES)` lanes, which nobody else reads or writes; all
/// aligned for their types.
#[inline(always)]
pub unsafe fn columns<S: InstructionSet, L: Lane>(b: &View<L::Value>, [k, columns]: [usize; 2], to: *mut u32) {
    let whole = k / L::VALUES;
    let width = columns.next_multiple_of(S::LANES);
    // SAFETY: the caller's promise: b is readable, and `to` has room for the panel.
    unsafe {
        let mut done = 0;
        if b.row_stride == 1 {
            done = whole - whole % S::LANES;
            for column in (0..columns).step_by(S::LANES) {
                let here = S::LANES.min(columns - column);
                for p in (0..done).step_by(S::LANES) {
                    let mut rows = [S::zero(); 16];
                    for (i, row) in rows.iter_mut().enumerate() {
                        if i < here {
                            *row = L::vector::<S>(b.from(p * L::VALUES, column + i).start);
                        }
                    }
                    S::transpose(&mut rows);
                    for (i, row) in rows.iter().enumerate() {
                        if i < S::LANES {
                            S::store(to.add((p + i) * width + column).cast(), *row);
                        }
                    }
                }
            }
        } else if b.column_stride == 1 && columns == width {
            done = whole;
            for p in 0..done {
                let (from, to) = (b.from(p * L::VALUES, 0), to.add(p * width));
                for i in 0..L::VALUES {
                    let ahead = b.from((p + AHEAD) * L::VALUES + i, 0).start;
                    prefetch::<1, _>(ahead, columns * size_of::<L::Value>());
                }
                for column in (0..columns).step_by(S::LANES) {
                    let mut lanes = [0; 16];
                    for (i, lane) in lanes.iter_mut().enumerate().take(S::LANES) {
                        *lane = L::of(from.start.add(column + i), b.row_stride, L::VALUES);
                    }
                    std::ptr::copy_nonoverlapping(lanes.as_ptr(), to.add(column), S::LANES);
                }
            }
        }
        for p in done..k.div_ceil(L::VALUES) {
            let here = (k - p * L::VALUES).min(L::VALUES);
            for column in 0..width {
                let place = to.add(p * width + column);
                let from = b.from(p * L::VALUES, column).start;
                place.write(if column < columns { L::of(from, b.row_stride, here) } else { 0 });
            }
        }
    }
}
