//! The loops around the microkernel: blocks of k, of rows and of columns, with packing.

use std::{cell::RefCell, ops::Range, ptr::null};

use super::pack::{self, LANE_BYTES, LINE, Lane, Line, PANEL_ROWS};
use super::product::{Element, NEAR, Onto, Product};
use super::tile::{Epilogue, Factor, Microkernel};
use super::{instructions::InstructionSet, matrix::MatrixMut, matrix::View};

/// Up to this many rows of the result, a row-major float32 `b` is read in place, because too few
/// rows would reuse a packed copy. With more rows it is packed: rows of `b` at a power-of-two
/// stride conflict in the cache, and every tile would miss them again.
const FEW_ROWS: usize = 64;

/// Rows of a block per column of a panel: enough for the panel's packing to be a small part of the
/// work, few enough for the rows to be still in the cache for the next panel. A multiple of a
/// tile's rows.
const ROWS_AT_ONCE: usize = 12;

/// How tiles read their rows of `a`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Unpacked, in place.
    InPlace,
    /// Packed row by row: a row's lanes stay adjacent.
    Copied,
    /// Packed in panels of [`PANEL_ROWS`].
    InPanels,
}

thread_local! {
    /// A thread's packing buffer, kept between products to save allocations.
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Computes the part of `product` in these rows and columns with the instructions `S`, whose
/// microkernels are in `microkernels`, by rows and vectors. The loops: blocks of k; in each, blocks
/// of rows; for them, panels of columns, each of which stays in the cache while the rows are
/// processed.
///
/// # Safety
/// - The processor must have the instructions of `S`, and the caller be compiled for them.
/// - `microkernels[rows - 1][vectors - 1]` must be for that many rows and vectors of `S`, and use
///   instructions that the processor has.
/// - The sizes in `product` must match one another and `c`, which must be float32 if it is added
///   to, and `rows` and `columns` must lie in `c`: [`Product::write`] checks all this.
/// - Nobody else may read or write these rows and columns of `c` meanwhile.
#[inline(always)]
pub unsafe fn compute<S: InstructionSet, L: Lane, O: Element>(
    product: &Product<L::Value>,
    c: &MatrixMut<O>,
    rows: Range<usize>,
    columns: Range<usize>,
    microkernels: &[&[Microkernel<O>]],
) {
    let [_, _, k] = product.size();
    let depth = k.div_ceil(L::VALUES);
    // A result that is not float32 cannot hold partial sums between blocks of k.
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
    let lanes_of_a = panels * panel;

    // Taken out and put back, because a closure would not be compiled for these instructions.
    let mut scratch = SCRATCH.take();
    let lines = lanes_of_a.div_ceil(LINE) + (depth * width).div_ceil(LINE);
    if scratch.len() < lines {
        scratch.resize(lines, Line::default());
    }
    let packed_a = scratch.as_mut_ptr().cast::<u32>();
    let packed_b = packed_a.wrapping_add(lanes_of_a.next_multiple_of(LINE));
    for first in (0..blocks).map(|block| block * depth * L::VALUES) {
        let k = (depth * L::VALUES).min(k.saturating_sub(first));
        let depth = k.div_ceil(L::VALUES);
        for row in rows.clone().step_by(at_once) {
            let height = at_once.min(rows.end - row);
            let a = a.from(row, first);
            // SAFETY: the buffer has room for the panels, and so for their rows; all else is the
            // caller's promise.
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
                    // SAFETY: the buffer has room for a panel; all else is the caller's promise.
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
                    let epilogue = product.epilogue(c, [row + top, column], columns, first == 0);
                    let microkernel = microkernels[PANEL_ROWS.min(height - top) - 1][vectors - 1];
                    // SAFETY: factors with `depth` lanes of k, and a part of the result, which
                    // exist by the caller's promise.
                    unsafe { microkernel(depth, a, b, &epilogue) };
                }
            }
        }
    }
    SCRATCH.set(scratch);
}

impl<T> Product<'_, T> {
    /// Whether the rows of `a` must be packed: a tile can read them in place only if its lanes
    /// exist as stored, and are near one another.
    fn packs_a<L: Lane>(&self, near: usize) -> bool {
        let is_whole = L::VALUES == 1 || (self.a.step[1] == 1 && self.size()[2].is_multiple_of(L::VALUES));
        !L::AS_STORED || !is_whole || self.is_across(near)
    }

    /// The epilogue of the tile at this place: the first block of k adds the product's addend and
    /// bias; later blocks add to the previous partial sums.
    #[inline(always)]
    fn epilogue<O>(&self, c: &MatrixMut<O>, [row, column]: [usize; 2], columns: usize, is_first: bool) -> Epilogue<O> {
        let start = c.start.wrapping_add(row * c.step + column);
        let (onto, onto_row) = match self.onto {
            Onto::Matrix(onto) if is_first => (View::of(&onto).from(row, column).start, onto.step[0]),
            Onto::Nothing if is_first => (null(), 0),
            _ => (start.cast::<f32>().cast_const(), c.step),
        };
        let bias = self.bias.filter(|_| is_first);
        Epilogue {
            c: start,
            c_row: c.step,
            onto,
            onto_row,
            bias: bias.map_or(null(), |bias| bias[column..].as_ptr()),
            columns,
        }
    }
}
