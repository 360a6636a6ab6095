//! The loops around the microkernel: blocks of k, strips of rows, panels of columns and tiles, with
//! packing.
//!
//! For example, `[1000, 2000]` times `[2000, 500]` in float32 with AVX-512, whose tiles have 6 rows
//! and 64 columns, on one thread:
//!
//! ```text
//! for each block of k            0..667, 667..1334, 1334..2000    the second and third add to c
//!   for each strip of rows       0..768, 768..1000                packs the strip of a, if needed
//!     for each panel of columns  0..64, 64..128, ..., 448..500    packs the panel of b, if needed
//!       for each tile's rows     0..6, 6..12, ...                 calls a microkernel
//! ```
//!
//! The last tiles of the second strip have 4 rows, and those of the last panel 52 columns: there is
//! a microkernel for each number of rows and of vectors, and a tile's epilogue knows the columns.

use std::{cell::RefCell, ops::Range, ptr::null};

use super::pack::{self, LANE_BYTES, LINE, Lane, Line, PANEL_ROWS};
use super::product::{Element, NEAR, Onto, Product};
use super::tile::{Epilogue, Factor, Microkernel};
use super::{instructions::InstructionSet, matrix::MatrixMut, matrix::View};

/// Up to this many rows of the result, a row-major float32 `b` is read in place, because too few
/// rows would reuse a packed copy. With more rows it is packed: rows of `b` at a power-of-two
/// stride conflict in the cache, and every tile would miss them again.
const FEW_ROWS: usize = 64;

/// Rows of a strip per column of a panel: enough for the panel's packing to be a small part of the
/// work, few enough for the rows to be still in the cache for the next panel. A multiple of a
/// tile's rows.
const ROWS_AT_ONCE: usize = 12;

/// How tiles read their rows of `a`. Lanes of rows r and s, for example, are in memory as follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Unpacked, in place.
    InPlace,
    /// Packed row by row, `r0 r1 ... s0 s1 ...`: contiguous rows that must be converted or padded.
    Copied,
    /// Packed in panels of [`PANEL_ROWS`], `r0 s0 ... r1 s1 ...`: rows that are not contiguous.
    InPanels,
}

impl Rows {
    /// The rows from `top` on of a strip that begins at `a`, and its packed copy, if there is one,
    /// at `packed`: with `depth` lanes of k in each row, and panels `panel` lanes apart.
    #[inline(always)]
    fn factor<L: Lane>(self, a: &View<L::Value>, packed: *const u32, top: usize, depth: usize, panel: usize) -> Factor {
        match self {
            Self::InPlace => {
                let k_stride_bytes = if L::VALUES > 1 { LANE_BYTES } else { a.column_stride * LANE_BYTES };
                let row_stride_bytes = a.row_stride * size_of::<L::Value>();
                Factor { start: a.from(top, 0).start.cast(), row_stride_bytes, k_stride_bytes }
            }
            Self::Copied => {
                let start = packed.wrapping_add(top * depth);
                Factor { start, row_stride_bytes: LANE_BYTES * depth, k_stride_bytes: LANE_BYTES }
            }
            Self::InPanels => {
                let start = packed.wrapping_add(top / PANEL_ROWS * panel);
                Factor { start, row_stride_bytes: LANE_BYTES, k_stride_bytes: LANE_BYTES * PANEL_ROWS }
            }
        }
    }
}

thread_local! {
    /// A thread's packing buffer, kept between products to save allocations.
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Computes the part of `product` in these rows and columns with the instructions `S`, whose
/// microkernels are in `microkernels`, by rows and vectors. A panel of `b` stays in the cache while
/// the rows of a strip are processed.
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
    let all_lanes = k.div_ceil(L::VALUES);
    // A result that is not float32 cannot hold partial sums between blocks of k.
    let blocks = if size_of::<O>() == size_of::<f32>() { all_lanes.div_ceil(S::DEPTH).max(1) } else { 1 };
    let block_lanes = all_lanes.div_ceil(blocks);
    let width = S::LANES * S::VECTORS;
    let strip = ROWS_AT_ONCE * width;
    let (a, b) = (View::of(&product.a), View::of(&product.b));
    let rows_of_a = match product.packs_a::<L>(NEAR * width) {
        false => Rows::InPlace,
        true if a.column_stride == 1 => Rows::Copied,
        true => Rows::InPanels,
    };
    let packs_b = L::VALUES > 1 || !L::AS_STORED || b.column_stride != 1 || rows.len() > FEW_ROWS;
    let panel = pack::panel_lanes(block_lanes);
    let panels = if rows_of_a == Rows::InPlace { 0 } else { strip.min(rows.len()).div_ceil(PANEL_ROWS) };
    let lanes_of_a = panels * panel;

    // Taken out and put back, because a closure would not be compiled for these instructions.
    let mut scratch = SCRATCH.take();
    let lines = lanes_of_a.div_ceil(LINE) + (block_lanes * width).div_ceil(LINE);
    if scratch.len() < lines {
        scratch.resize(lines, Line::default());
    }
    let packed_a = scratch.as_mut_ptr().cast::<u32>();
    let packed_b = packed_a.wrapping_add(lanes_of_a.next_multiple_of(LINE));
    for first_k in (0..blocks).map(|block| block * block_lanes * L::VALUES) {
        let block_k = (block_lanes * L::VALUES).min(k.saturating_sub(first_k));
        let depth = block_k.div_ceil(L::VALUES);
        for first_row in rows.clone().step_by(strip) {
            let height = strip.min(rows.end - first_row);
            let a = a.from(first_row, first_k);
            // SAFETY: the buffer has room for the panels, and so for their rows; all else is the
            // caller's promise.
            unsafe {
                match rows_of_a {
                    Rows::InPlace => {}
                    Rows::Copied => pack::in_rows::<L>(&a, [height, block_k], packed_a),
                    Rows::InPanels => pack::rows::<L>(&a, [height, block_k], packed_a, panel),
                }
            }
            for column in columns.clone().step_by(width) {
                let panel_columns = width.min(columns.end - column);
                let vectors = panel_columns.div_ceil(S::LANES);
                let b = b.from(first_k, column);
                let b = if packs_b || panel_columns % S::LANES != 0 {
                    // SAFETY: the buffer has room for a panel; all else is the caller's promise.
                    unsafe { pack::columns::<S, L>(&b, [block_k, panel_columns], packed_b) };
                    let k_stride_bytes = vectors * S::LANES * LANE_BYTES;
                    Factor { start: packed_b, row_stride_bytes: 0, k_stride_bytes }
                } else {
                    Factor { start: b.start.cast(), row_stride_bytes: 0, k_stride_bytes: b.row_stride * LANE_BYTES }
                };
                for top in (0..height).step_by(PANEL_ROWS) {
                    let a = rows_of_a.factor::<L>(&a, packed_a, top, depth, panel);
                    let epilogue = product.epilogue(c, [first_row + top, column], panel_columns, first_k == 0);
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
        let is_whole = L::VALUES == 1 || (self.a.strides[1] == 1 && self.size()[2].is_multiple_of(L::VALUES));
        !L::AS_STORED || !is_whole || self.is_across(near)
    }

    /// The epilogue of the tile at this place: the first block of k adds the product's addend and
    /// bias; later blocks add to the previous partial sums.
    #[inline(always)]
    fn epilogue<O>(&self, c: &MatrixMut<O>, [row, column]: [usize; 2], columns: usize, is_first: bool) -> Epilogue<O> {
        let start = c.start.wrapping_add(row * c.row_stride + column);
        let (onto, onto_row_stride) = match self.onto {
            Onto::Matrix(onto) if is_first => (View::of(&onto).from(row, column).start, onto.strides[0]),
            Onto::Nothing if is_first => (null(), 0),
            _ => (start.cast::<f32>().cast_const(), c.row_stride),
        };
        let bias = self.bias.filter(|_| is_first);
        Epilogue {
            c: start,
            c_row_stride: c.row_stride,
            onto,
            onto_row_stride,
            bias: bias.map_or(null(), |bias| bias[column..].as_ptr()),
            columns,
        }
    }
}
