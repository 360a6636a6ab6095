//! A warpgroup's part of a tile in registers, and its products with tiles in shared memory.

use crate::gpu::prelude::*;
use crate::gpu::ptx::{self, Half, Product};
use crate::gpu::tensor_cores::PLANE;
use crate::gpu::warpgroup::{
    GROUP, NUMBERS, ROW, ROWS, STEP, SWIZZLED, VECTOR_BYTES, WORDS, descriptor, is_upper, own_row, rounded, step,
};

/// Positions of a tile in the sweep.
pub const BLOCK: usize = 64;
/// Bytes of a warpgroup's rows, or of a tile.
pub const TILE: usize = ROWS * ROW;
/// Pairs of tiles that are copied ahead.
pub const AHEAD: usize = 2;
/// Pairs of tiles in shared memory: those, and one in use.
pub const STAGES: usize = AHEAD + 1;
/// Registers of a unit for a tile of scores.
pub const SCORES: usize = BLOCK / 2;
/// Registers of a unit for an accumulator of the width of a head.
pub const SUMS: usize = NUMBERS / 2;
/// Vectors in a head.
pub const VECTORS: usize = SWIZZLED;
/// Vector width: numbers of a half type that a unit loads at once.
pub const VECTOR_SIZE: usize = VECTOR_BYTES / 2;
/// Vectors of the result that a unit writes per row.
const WRITTEN: usize = NUMBERS / 2 / WORDS / 4;
/// Score of masked keys, and of rows beyond the end.
pub const LOWEST: f32 = -1e30;

/// Compile-time configuration of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// The type of the inputs.
    pub half: Half,
    /// Whether weights are dropped.
    pub drops: bool,
    /// Warpgroups of a cube.
    pub groups: usize,
}

impl Form {
    /// The configuration for `qkv`, in float16 or bfloat16.
    pub fn new(qkv: &CubeTensor, drops: bool, groups: usize) -> Self {
        let half = if qkv.dtype == DType::F16 { Half::F16 } else { Half::BF16 };
        Self { half, drops, groups }
    }

    /// Units of a cube.
    pub const fn units(self) -> usize {
        self.groups * GROUP
    }

    /// Rows of a cube.
    pub const fn rows(self) -> usize {
        self.groups * ROWS
    }

    /// The product of rows and a tile's rows over the head dimension: scores.
    pub const fn scores(self) -> Product {
        let steps = [step(false); 2];
        Product { columns: BLOCK, half: self.half, across: [false; 2], steps, count: NUMBERS / STEP }
    }

    /// The product of weights and a tile, over its rows.
    pub const fn weighted(self) -> Product {
        let steps = [0, step(true)];
        Product { columns: NUMBERS, half: self.half, across: [false, true], steps, count: BLOCK / STEP }
    }
}

/// The tensor cores' descriptor of the tile at address `at`.
#[cube]
pub fn described(at: u32) -> u64 {
    comptime!(descriptor(VECTOR_BYTES)) + (at / VECTOR_BYTES as u32) as u64
}

/// The maximum over the four units of a row.
#[cube]
pub fn largest_of_four(x: f32) -> f32 {
    let x = f32::max(x, plane_shuffle_xor(x, 1u32));
    f32::max(x, plane_shuffle_xor(x, 2u32))
}

/// The sum over the four units of a row.
#[cube]
pub fn sum_of_four(x: f32) -> f32 {
    let x = x + plane_shuffle_xor(x, 1u32);
    x + plane_shuffle_xor(x, 2u32)
}

/// Numbers packed as a factor in registers.
#[cube]
pub fn factor(numbers: &Array<f32>, #[comptime] half: Half) -> Sequence<u32> {
    let mut pairs = Sequence::<u32>::new();
    #[unroll]
    for i in 0..comptime!(SCORES / 2) {
        pairs.push(ptx::packed(numbers[comptime!(2 * i)], numbers[comptime!(2 * i + 1)], half));
    }
    pairs
}

/// Writes a unit's two rows of sums, times the factors `upper` and `lower`, if they are below
/// `valid`.
#[cube]
pub fn write(
    sums: &Array<f32>,
    upper: f32,
    lower: f32,
    out: &mut [Vector<u32, Const<WORDS>>],
    first: usize,
    stride: usize,
    valid: usize,
    #[comptime] half: Half,
) {
    let lane = UNIT_POS % comptime!(PLANE as u32);
    let mut scaled = Sequence::<f32>::new();
    #[unroll]
    for i in 0..SUMS {
        let factor = if comptime!(is_upper(i)) { upper } else { lower };
        scaled.push(sums[i] * factor);
    }
    #[unroll]
    for which in 0..2usize {
        let row = own_row() + which * 8;
        #[unroll]
        for vector in 0..WRITTEN {
            let words = rounded(&scaled, lane, vector, which, half);
            if row < valid {
                out[first + row * stride + vector * 4 + (lane % 4) as usize] = words;
            }
        }
    }
}
