//! The loops around a tile: blocks of k, rows and panels of columns, packed on the way.

use std::{cell::RefCell, ops::Range, ptr::null};

use super::pack::{self, LANE_BYTES, LINE, Lane, Line, PANEL_ROWS};
use super::product::{Element, NEAR, Onto, Product};
use super::tile::{Factor, Finish, Tile};
use super::{instructions::InstructionSet, matrix::MatrixMut, matrix::View};

/// For at most so many rows of a result, a float32 `b` whose columns lie side by side is read where it
/// is: too few rows would read what was packed. For more it is packed: rows of `b` a power of two
/// apart share a few places of the cache, and each tile would wait for them anew.
const FEW_ROWS: usize = 64;

/// Rows that pass by a panel at once, for each of its columns: enough for its packing to be little
/// of the work, few enough for them to be still near when the next panel comes. A multiple of a
/// tile's.
const ROWS_AT_ONCE: usize = 12;

/// How tiles find their rows of `a`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Where they lie.
    InPlace,
    /// Packed one after another: what lay side by side in a row still does.
    Copied,
    /// Packed in panels of [`PANEL_ROWS`].
    InPanels,
}

thread_local! {
    /// Where a thread packs; kept, for a product each time would have to ask for it.
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// The part of `product` in these rows and columns, by the instructions `S`, whose functions for
/// tiles are in `tiles`, by rows and vectors. Block by block of k; in each, some rows; for them
/// panel by panel of columns, which stays near while the rows pass by.
///
/// # Safety
/// - The processor must have the instructions of `S`, and the caller be compiled for them.
/// - `tiles[rows - 1][vectors - 1]` must be for so many rows and vectors of `S`, by instructions
///   that the processor has.
/// - The sizes in `product` must go together with one another and with `c`, which is float32 where
///   it is added to, and `rows` and `columns` lie in `c`: as [`Product::write`] checks them.
/// - Nobody else may read or write these rows and columns of `c` meanwhile.
#[inline(always)]
pub unsafe fn compute<S: InstructionSet, L: Lane, O: Element>(
    product: &Product<L::Value>,
    c: &MatrixMut<O>,
    rows: Range<usize>,
    columns: Range<usize>,
    tiles: &[&[Tile<O>]],
) {
    let [_, _, k] = product.size();
    let depth = k.div_ceil(L::VALUES);
    // A result that is not float32 cannot wait in memory for the next block.
    let blocks = if size_of::<O>() == size_of::<f32>() { depth.div_ceil(S::DEPTH).max(1) } else { 1 };
    let depth = depth.div_ceil(blocks);
    let width = S::LANES * S::VECTORS;
    let (a, b) = (View::of(&product.a), View::of(&product.b));
    let rows_of_a = match product.packs_a::<L>(NEAR * width) {
        false => Rows::InPlace,
        true if a.column == 1 => Rows::Copied,
        true => Rows::InPanels,
    };
    let packs_b = L::VALUES > 1 || !L::AS_STORED || b.column != 1 || rows.len() > FEW_ROWS;
    let at_once = ROWS_AT_ONCE * width;
    let panel = pack::panel_lanes(depth);
    let panels = if rows_of_a == Rows::InPlace { 0 } else { at_once.min(rows.len()).div_ceil(PANEL_ROWS) };
    let room = panels * panel;

    // Taken out and put back: what runs in a closure is not compiled for the instructions.
    let mut scratch = SCRATCH.take();
    let lines = room.div_ceil(LINE) + (depth * width).div_ceil(LINE);
    if scratch.len() < lines {
        scratch.resize(lines, Line::default());
    }
    let packed_a = scratch.as_mut_ptr().cast::<u32>();
    let packed_b = packed_a.wrapping_add(room.next_multiple_of(LINE));
    for first in (0..blocks).map(|block| block * depth * L::VALUES) {
        let k = (depth * L::VALUES).min(k.saturating_sub(first));
        let depth = k.div_ceil(L::VALUES);
        for row in rows.clone().step_by(at_once) {
            let height = at_once.min(rows.end - row);
            let a = a.from(row, first);
            // SAFETY: where they are packed there is room for so many panels, and so for their rows; all
            // else is the caller's promise.
            unsafe {
                match rows_of_a {
                    Rows::InPlace => {}
                    Rows::Copied => pack::in_rows::<L>(&a, [height, k], packed_a),
                    Rows::InPanels => pack::rows::<L>(&a, [height, k], packed_a, panel),
                }
            }
            for column in columns.clone().step_by(width) {
                let columns = width.min(columns.end - column);
                let vectors = columns.div_ceil(S::LANES);
                let b = b.from(first, column);
                let b = if packs_b || columns % S::LANES != 0 {
                    // SAFETY: there is room for a panel; all else is the caller's promise.
                    unsafe { pack::columns::<S, L>(&b, [k, columns], packed_b) };
                    Factor { start: packed_b, row: 0, step: vectors * S::LANES * LANE_BYTES }
                } else {
                    Factor { start: b.start.cast(), row: 0, step: b.row * LANE_BYTES }
                };
                for top in (0..height).step_by(PANEL_ROWS) {
                    let a = match rows_of_a {
                        Rows::InPlace => {
                            let step = if L::VALUES > 1 { LANE_BYTES } else { a.column * LANE_BYTES };
                            Factor { start: a.from(top, 0).start.cast(), row: a.row * size_of::<L::Value>(), step }
                        }
                        Rows::Copied => {
                            let start = packed_a.wrapping_add(top * depth);
                            Factor { start, row: LANE_BYTES * depth, step: LANE_BYTES }
                        }
                        Rows::InPanels => {
                            let start = packed_a.wrapping_add(top / PANEL_ROWS * panel);
                            Factor { start, row: LANE_BYTES, step: LANE_BYTES * PANEL_ROWS }
                        }
                    };
                    let finish = product.finish(c, [row + top, column], columns, first == 0);
                    let tile = tiles[PANEL_ROWS.min(height - top) - 1][vectors - 1];
                    // SAFETY: factors with `depth` lanes of k, and a part of the result; by the
                    // caller's promise they are there.
                    unsafe { tile(depth, a, b, &finish) };
                }
            }
        }
    }
    SCRATCH.set(scratch);
}

impl<T> Product<'_, T> {
    /// Whether a tile cannot read its rows of `a` where they are: its lanes must be there, and near
    /// one another.
    fn packs_a<L: Lane>(&self, near: usize) -> bool {
        let is_whole = L::VALUES == 1 || (self.a.step[1] == 1 && self.size()[2].is_multiple_of(L::VALUES));
        !L::AS_STORED || !is_whole || self.is_across(near)
    }

    /// Where the tile at this place goes: in the first block of k onto what is to be added, later
    /// onto what the blocks before left.
    #[inline(always)]
    fn finish<O>(&self, c: &MatrixMut<O>, [row, column]: [usize; 2], columns: usize, is_first: bool) -> Finish<O> {
        let start = c.start.wrapping_add(row * c.step + column);
        let (onto, onto_row) = match self.onto {
            Onto::Matrix(onto) if is_first => (View::of(&onto).from(row, column).start, onto.step[0]),
            Onto::Nothing if is_first => (null(), 0),
            _ => (start.cast::<f32>().cast_const(), c.step),
        };
        let bias = self.bias.filter(|_| is_first);
        Finish {
            c: start,
            c_row: c.step,
            onto,
            onto_row,
            bias: bias.map_or(null(), |bias| bias[column..].as_ptr()),
            columns,
        }
    }
}
