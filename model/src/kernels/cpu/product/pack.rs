//! Factors laid out in the order in which tiles read them.

use burn::tensor::bf16;

use super::View;
use super::sets::Set;

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

/// A value that products multiply; a unit of 4 bytes holds as many as fit, neighbours in k.
pub trait Element: Copy + Send + Sync + 'static {
    /// Values in a unit.
    const PER_UNIT: usize;

    /// The unit of values `step` apart, of which `count` are there.
    unsafe fn unit(from: *const Self, step: usize, count: usize) -> u32;
}

impl Element for f32 {
    const PER_UNIT: usize = 1;

    #[inline(always)]
    unsafe fn unit(from: *const Self, _step: usize, _count: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { from.read().to_bits() }
    }
}

impl Element for bf16 {
    const PER_UNIT: usize = 2;

    #[inline(always)]
    unsafe fn unit(from: *const Self, step: usize, count: usize) -> u32 {
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

/// Packs `[rows, k]` of a: panels of [`PANEL_ROWS`] rows, `panel` units apart, in each the rows' units side by side.
#[inline(always)]
pub unsafe fn rows<T: Element>(a: View<T>, [rows, k]: [usize; 2], to: *mut u32, panel: usize) {
    let depth = k.div_ceil(T::PER_UNIT);
    // SAFETY: the caller's promise: a is there, and room for its panels. A panel's units are written in the order of k.
    unsafe {
        // Some of k at a time, so that the lines read for one panel are still at hand for the next.
        for first in (0..depth).step_by(16) {
            let last = depth.min(first + 16);
            let whole = last.min(k / T::PER_UNIT);
            for top in (0..rows).step_by(PANEL_ROWS) {
                let to = to.add(top / PANEL_ROWS * panel);
                let mut p = first;
                if a.row == 1 && top + AT_ONCE <= rows {
                    let mut from = a.from(top, p * T::PER_UNIT).start;
                    while p < whole {
                        let mut units = [0; AT_ONCE];
                        for (i, unit) in units.iter_mut().enumerate() {
                            *unit = T::unit(from.add(i), a.column, T::PER_UNIT);
                        }
                        to.add(p * PANEL_ROWS).cast::<[u32; AT_ONCE]>().write_unaligned(units);
                        from = from.wrapping_add(a.column * T::PER_UNIT);
                        p += 1;
                    }
                }
                while p < last {
                    let here = (k - p * T::PER_UNIT).min(T::PER_UNIT);
                    for i in 0..PANEL_ROWS.min(rows - top) {
                        let from = a.from(top + i, p * T::PER_UNIT).start;
                        to.add(p * PANEL_ROWS + i).write(T::unit(from, a.column, here));
                    }
                    p += 1;
                }
            }
        }
    }
}

/// Packs `[k, columns]` of b, the columns of one panel: for each unit of k the columns' units side by side, up to a whole vector.
#[inline(always)]
pub unsafe fn columns<S: Set, T: Element>(b: View<T>, [k, columns]: [usize; 2], to: *mut u32) {
    let whole = k / T::PER_UNIT;
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
                            *row = S::load(b.from(p * T::PER_UNIT, column + i).start.cast());
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
                let (from, to) = (b.from(p * T::PER_UNIT, 0), to.add(p * width));
                for column in (0..columns).step_by(S::LANES) {
                    let mut units = [0; 16];
                    for (i, unit) in units.iter_mut().enumerate().take(S::LANES) {
                        *unit = T::unit(from.start.add(column + i), b.row, T::PER_UNIT);
                    }
                    std::ptr::copy_nonoverlapping(units.as_ptr(), to.add(column), S::LANES);
                }
            }
        }
        for p in done..k.div_ceil(T::PER_UNIT) {
            let here = (k - p * T::PER_UNIT).min(T::PER_UNIT);
            for column in 0..width {
                let place = to.add(p * width + column);
                place.write(if column < columns {
                    T::unit(b.from(p * T::PER_UNIT, column).start, b.row, here)
                } else {
                    0
                });
            }
        }
    }
}
