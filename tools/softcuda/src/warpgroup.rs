//! `wgmma`: matrix products of four warps, with the factors in shared memory, or the left one in
//! registers. They are computed immediately, but the shared memory that they read counts as being
//! read until the warp has waited for them.

use crate::{
    block::Block,
    lanes::{LANES, Lanes, Outcome},
    matrix::{add_product, decoded, position},
    ptx::*,
    warp::Warp,
};
use std::ops::Range;

/// Rows that one warp computes, of the 64 rows of its warpgroup's product.
const ROWS: usize = 16;
const DEPTH: usize = 16;
const WARPS: usize = 4;
/// 2-byte elements that stay contiguous in shared memory under swizzling.
const CHUNK: usize = 8;
const CHUNK_BYTES: u64 = 16;
/// Elements per register.
const HALVES: usize = 2;
/// 2-byte elements in a line of 128 bytes.
const LINE: usize = 64;

/// The addresses in shared memory from which a product's factors were read.
pub struct Reads(Vec<u64>);

/// A factor in shared memory, decoded from its matrix descriptor.
struct Factor {
    start: u64,
    /// Byte offset between blocks of 64 rows, for a transposed factor.
    leading: u64,
    /// Byte offset between groups of eight lines of 128 bytes.
    stride: u64,
    transposed: bool,
}

impl Factor {
    fn described(descriptor: u64, transposed: bool) -> Outcome<Factor> {
        let bytes = |lowest: u32| (descriptor >> lowest & 0x3fff) << 4;
        let (base, swizzle) = (descriptor >> 49 & 7, descriptor >> 62);
        if base != 0 {
            return Err(format!("a matrix descriptor with base offset {base}: only 0 is supported"));
        }
        if swizzle != 1 {
            return Err(format!("a matrix descriptor with swizzle {swizzle}: only 1, of 128 bytes, is supported"));
        }
        Ok(Factor { start: bytes(0), leading: bytes(16), stride: bytes(32), transposed })
    }

    /// The address of the element in this row (of B: column) at this depth.
    fn at(&self, row: usize, depth: usize) -> u64 {
        let (along, across) = if self.transposed { (row, depth) } else { (depth, row) };
        let block = (along / LINE) as u64 * self.leading;
        let lines = (across / 8) as u64 * self.stride + (across % 8) as u64 * 128;
        swizzled(self.start + block + lines + (along % LINE) as u64 * 2)
    }

    /// Row and depth of all elements, chunk by chunk.
    fn chunks(&self, rows: Range<usize>) -> Vec<[(usize, usize); CHUNK]> {
        let chunk =
            |row, depth| std::array::from_fn(|i| if self.transposed { (row + i, depth) } else { (row, depth + i) });
        let (row_step, depth_step) = if self.transposed { (CHUNK, 1) } else { (1, CHUNK) };
        rows.step_by(row_step)
            .flat_map(|row| (0..DEPTH).step_by(depth_step).map(move |depth| chunk(row, depth)))
            .collect()
    }
}

/// The 128-byte swizzle: permutes the 16-byte chunks of a line, depending on the line.
fn swizzled(address: u64) -> u64 {
    address ^ (address >> 7 & 7) << 4
}

/// A value that all lanes must share.
fn uniform(values: Lanes<u64>, what: &str) -> Outcome<u64> {
    if values.iter().all(|v| *v == values[0]) { Ok(values[0]) } else { Err(format!("lanes disagree about {what}")) }
}

impl Block<'_> {
    pub fn warpgroup_multiply(
        &mut self,
        warp: &mut Warp,
        columns: usize,
        ty: Ty,
        sums: &[Reg],
        factors: &[Operand; 2],
        accumulate: Src,
    ) -> Outcome<()> {
        let threads = self.launch.block.0 * self.launch.block.1 * self.launch.block.2;
        let first_warp = warp.index as usize / WARPS * WARPS;
        if first_warp + WARPS > (threads as usize).div_ceil(LANES) {
            return Err("the block's last warpgroup has fewer than four warps".into());
        }
        let first = ROWS * (warp.index as usize - first_warp);
        let mut reads = Vec::new();
        let [a, b] = factors;
        let mut left = vec![0f32; ROWS * DEPTH];
        self.read_factor(warp, a, ty, first..first + ROWS, &mut reads, |row, depth, v| {
            left[(row - first) * DEPTH + depth] = v;
        })?;
        let mut right = vec![0f32; DEPTH * columns];
        self.read_factor(warp, b, ty, 0..columns, &mut reads, |column, depth, v| right[depth * columns + column] = v)?;

        let shape = (ROWS, columns, DEPTH);
        let place = |lane: usize, reg: usize| {
            let (row, column) = position(Part::C, shape, Ty::F32, lane, reg, 0);
            row * columns + column
        };
        let mut product = vec![0f32; ROWS * columns];
        if uniform(std::array::from_fn(|lane| (warp.bits(accumulate) >> lane & 1) as u64), "the old sums")? == 1 {
            for (reg, sum) in sums.iter().enumerate() {
                for (lane, old) in warp.word(Src::Reg(*sum), self).into_iter().enumerate() {
                    product[place(lane, reg)] = f32::from_bits(old);
                }
            }
        }
        add_product(&left, &right, &mut product, columns);
        for (reg, sum) in sums.iter().enumerate() {
            warp.set_word(*sum, &std::array::from_fn(|lane| product[place(lane, reg)].to_bits()), u32::MAX);
        }
        self.counts.matrix_macs += (ROWS * columns * DEPTH) as u64;
        warp.warpgroup_products += 1;
        warp.products.add(Reads(reads));
        Ok(())
    }

    /// Calls `put` with row (of B: column), depth and value of each element of a factor.
    fn read_factor(
        &mut self,
        warp: &mut Warp,
        operand: &Operand,
        ty: Ty,
        rows: Range<usize>,
        reads: &mut Vec<u64>,
        mut put: impl FnMut(usize, usize, f32),
    ) -> Outcome<()> {
        let sign = if operand.negative { -1.0 } else { 1.0 };
        let put = |row, depth, v: f32| put(row, depth, sign * v);
        match operand.place {
            Place::Shared { descriptor, transposed } => {
                let descriptor = uniform(warp.double(descriptor, self), "a matrix descriptor")?;
                self.read_shared(warp, Factor::described(descriptor, transposed)?, ty, rows, reads, put)
            }
            Place::Registers(registers) => {
                self.read_registers(warp, &registers, ty, rows.start, put);
                Ok(())
            }
        }
    }

    /// Reads the warp's own rows from registers, in the layout of `mma.sync`.
    fn read_registers(
        &self,
        warp: &Warp,
        registers: &[Src],
        ty: Ty,
        first: usize,
        mut put: impl FnMut(usize, usize, f32),
    ) {
        for (reg, source) in registers.iter().enumerate() {
            for (lane, word) in warp.word(*source, self).into_iter().enumerate() {
                for half in 0..HALVES {
                    let (row, depth) = position(Part::A, (ROWS, 0, DEPTH), ty, lane, reg, half);
                    put(first + row, depth, decoded(ty, word, half));
                }
            }
        }
    }

    fn read_shared(
        &mut self,
        warp: &mut Warp,
        factor: Factor,
        ty: Ty,
        rows: Range<usize>,
        reads: &mut Vec<u64>,
        mut put: impl FnMut(usize, usize, f32),
    ) -> Outcome<()> {
        for chunk in factor.chunks(rows) {
            let at = factor.at(chunk[0].0, chunk[0].1);
            let from = self.aligned_pointer(warp, 0, Space::Shared, at, CHUNK_BYTES)? as *const u16;
            if let Some(races) = &mut self.races {
                races.begin_product(warp.index, at, CHUNK_BYTES);
            }
            reads.push(at);
            for (i, (row, depth)) in chunk.into_iter().enumerate() {
                put(row, depth, decoded(ty, unsafe { *from.add(i) } as u32, 0));
            }
        }
        Ok(())
    }

    /// Waits until at most `most` groups of the warp's products are pending.
    pub fn await_products(&mut self, warp: &mut Warp, most: usize) {
        let finished = warp.products.finish(most);
        let Some(races) = &mut self.races else { return };
        for at in finished.into_iter().flat_map(|reads| reads.0) {
            races.end_product(warp.index, at, CHUNK_BYTES);
        }
        races.warp_barrier(warp.index);
    }
}

/// Checks that the four warps of each warpgroup have executed the same number of products.
pub fn check_warpgroups(warps: &[Warp]) -> Outcome<()> {
    match warps
        .chunks(WARPS)
        .find(|group| group.iter().any(|warp| warp.warpgroup_products != group[0].warpgroup_products))
    {
        Some(group) => {
            let products: Vec<u64> = group.iter().map(|warp| warp.warpgroup_products).collect();
            Err(format!("the warps of a warpgroup made {products:?} products by wgmma"))
        }
        None => Ok(()),
    }
}
