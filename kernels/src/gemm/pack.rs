//! Factors laid out in the order in which tiles read them.

use burn::tensor::bf16;

use super::View;
use super::instructions::Set;
use crate::cpu::convert::widened;
use crate::simd::prefetch;

/// Rows of a tile.
pub const PANEL_ROWS: usize = 6;

/// Bytes of a unit.
pub const UNIT: usize = 4;

/// Units in a line of the cache.
pub const LINE: usize = 16;

/// A line of the cache.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct Line(#[allow(dead_code)] [u32; LINE]);

/// What tiles multiply: 4 bytes that hold one value or several, neighbours in k.
pub trait Unit: 'static {
    /// What it is made of.
    type Value: Copy;
    /// Values in a unit.
    const VALUES: usize;
    /// Whether values that lie side by side are units just as they are.
    const AS_STORED: bool = true;

    /// The unit of values `step` apart, of which `count` are there.
    unsafe fn of(from: *const Self::Value, step: usize, count: usize) -> u32;

    /// A vector of units of values that lie side by side.
    #[inline(always)]
    unsafe fn vector<S: Set>(from: *const Self::Value) -> S::Vector {
        let mut units = [0; 16];
        // SAFETY: the caller's promise; no vector is longer.
        unsafe {
            for (i, unit) in units.iter_mut().enumerate().take(S::LANES) {
                *unit = Self::of(from.add(i * Self::VALUES), 1, Self::VALUES);
            }
            S::load(units.as_ptr().cast())
        }
    }
}

/// A float32.
#[derive(Debug)]
pub enum Single {}

impl Unit for Single {
    type Value = f32;
    const VALUES: usize = 1;

    #[inline(always)]
    unsafe fn of(from: *const f32, _step: usize, _count: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { from.read().to_bits() }
    }
}

/// A bfloat16 made float32, for processors that multiply no other type.
#[derive(Debug)]
pub enum Widened {}

impl Unit for Widened {
    type Value = bf16;
    const VALUES: usize = 1;
    const AS_STORED: bool = false;

    #[inline(always)]
    unsafe fn of(from: *const bf16, _step: usize, _count: usize) -> u32 {
        // SAFETY: the caller's promise.
        widened(unsafe { from.read() }).to_bits()
    }
}

/// Two bfloat16.
#[derive(Debug)]
pub enum Pair {}

impl Unit for Pair {
    type Value = bf16;
    const VALUES: usize = 2;

    #[inline(always)]
    unsafe fn of(from: *const bf16, step: usize, count: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let second = if count > 1 { from.add(step).read().to_bits() } else { 0 };
            u32::from(from.read().to_bits()) | (u32::from(second) << 16)
        }
    }
}

/// Units that are moved at once from a row; what is more than a panel has is written over by the next.
const AT_ONCE: usize = 8;

/// Units of a packed panel with `depth` units of k, and room for what `AT_ONCE` writes beyond its end.
pub fn panel_units(depth: usize) -> usize {
    depth * PANEL_ROWS + AT_ONCE
}

/// Packs `[rows, k]` of a, whose values of a row lie side by side, in the same order.
#[inline(always)]
pub unsafe fn in_rows<U: Unit>(a: &View<U::Value>, [rows, k]: [usize; 2], to: *mut u32) {
    let (whole, depth) = (k / U::VALUES, k.div_ceil(U::VALUES));
    for row in 0..rows {
        // SAFETY: the caller's promise: a is there, and room for so many rows of `depth` units.
        unsafe {
            let (from, to) = (a.from(row, 0).start, to.add(row * depth));
            for p in 0..whole {
                to.add(p).write(U::of(from.add(p * U::VALUES), 1, U::VALUES));
            }
            for p in whole..depth {
                to.add(p).write(U::of(from.add(p * U::VALUES), 1, k - p * U::VALUES));
            }
        }
    }
}

/// Packs `[rows, k]` of a: panels of [`PANEL_ROWS`] rows, `panel` units apart, in each the rows' units side by side.
#[inline(always)]
pub unsafe fn rows<U: Unit>(a: &View<U::Value>, [rows, k]: [usize; 2], to: *mut u32, panel: usize) {
    let depth = k.div_ceil(U::VALUES);
    // SAFETY: the caller's promise: a is there, and room for its panels. A panel's units are written in the order of k.
    unsafe {
        // Some of k at a time, so that the lines read for one panel are still at hand for the next.
        for first in (0..depth).step_by(16) {
            let last = depth.min(first + 16);
            let whole = last.min(k / U::VALUES);
            for top in (0..rows).step_by(PANEL_ROWS) {
                let to = to.add(top / PANEL_ROWS * panel);
                let mut p = first;
                if a.row == 1 && top + AT_ONCE <= rows {
                    let mut from = a.from(top, p * U::VALUES).start;
                    while p < whole {
                        let mut units = [0; AT_ONCE];
                        for (i, unit) in units.iter_mut().enumerate() {
                            *unit = U::of(from.add(i), a.column, U::VALUES);
                        }
                        to.add(p * PANEL_ROWS).cast::<[u32; AT_ONCE]>().write_unaligned(units);
                        from = from.wrapping_add(a.column * U::VALUES);
                        p += 1;
                    }
                }
                while p < last {
                    let here = (k - p * U::VALUES).min(U::VALUES);
                    for i in 0..PANEL_ROWS.min(rows - top) {
                        let from = a.from(top + i, p * U::VALUES).start;
                        to.add(p * PANEL_ROWS + i).write(U::of(from, a.column, here));
                    }
                    p += 1;
                }
            }
        }
    }
}

/// Rows of b that memory is asked for ahead: each lies on a page of its own, across which no processor looks ahead by itself.
const AHEAD: usize = 16;

/// Packs `[k, columns]` of b, the columns of one panel: for each unit of k the columns' units side by side, up to a whole vector.
#[inline(always)]
pub unsafe fn columns<S: Set, U: Unit>(b: &View<U::Value>, [k, columns]: [usize; 2], to: *mut u32) {
    let whole = k / U::VALUES;
    let width = columns.next_multiple_of(S::LANES);
    // SAFETY: the caller's promise: b is there, and room for the panel.
    unsafe {
        let mut done = 0;
        if b.row == 1 {
            done = whole - whole % S::LANES;
            for column in (0..columns).step_by(S::LANES) {
                let here = S::LANES.min(columns - column);
                for p in (0..done).step_by(S::LANES) {
                    let mut rows = [S::zero(); 16];
                    for (i, row) in rows.iter_mut().enumerate() {
                        if i < here {
                            *row = U::vector::<S>(b.from(p * U::VALUES, column + i).start);
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
        } else if b.column == 1 && columns == width {
            done = whole;
            for p in 0..done {
                let (from, to) = (b.from(p * U::VALUES, 0), to.add(p * width));
                for i in 0..U::VALUES {
                    let ahead = b.from((p + AHEAD) * U::VALUES + i, 0).start;
                    prefetch::<1, _>(ahead, columns * size_of::<U::Value>());
                }
                for column in (0..columns).step_by(S::LANES) {
                    let mut units = [0; 16];
                    for (i, unit) in units.iter_mut().enumerate().take(S::LANES) {
                        *unit = U::of(from.start.add(column + i), b.row, U::VALUES);
                    }
                    std::ptr::copy_nonoverlapping(units.as_ptr(), to.add(column), S::LANES);
                }
            }
        }
        for p in done..k.div_ceil(U::VALUES) {
            let here = (k - p * U::VALUES).min(U::VALUES);
            for column in 0..width {
                let place = to.add(p * width + column);
                place.write(if column < columns { U::of(b.from(p * U::VALUES, column).start, b.row, here) } else { 0 });
            }
        }
    }
}
