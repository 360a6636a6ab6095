//! What a warpgroup holds of a tile in its units' registers, and the products that it makes of it.

use crate::gpu::prelude::*;
use crate::gpu::ptx::{self, Half, Product};
use crate::gpu::tensor_cores::PLANE;
use crate::gpu::warpgroup::{
    GROUP, NUMBERS, ROW, ROWS, STEP, SWIZZLED, VECTOR_BYTES, WORDS, descriptor, is_upper, own_row, rounded, step,
};

/// Positions of a tile that is swept over.
pub const BLOCK: usize = 64;
/// Bytes of the rows of a warpgroup, or of a tile.
pub const TILE: usize = ROWS * ROW;
/// Pairs of tiles that are on their way.
pub const AHEAD: usize = 2;
/// Pairs of tiles that shared memory holds: those, and one in use.
pub const STAGES: usize = AHEAD + 1;
/// Numbers in a unit of a tile of scores, and of a sum over the width of a head.
pub const SCORES: usize = BLOCK / 2;
/// See [`SCORES`].
pub const SUMS: usize = NUMBERS / 2;
/// Vectors in a head.
pub const VECTORS: usize = SWIZZLED;
/// Numbers of a half type that a unit reads at once.
pub const VECTOR_SIZE: usize = VECTOR_BYTES / 2;
/// Vectors of the result that a unit writes in a row.
const WRITTEN: usize = NUMBERS / 2 / WORDS / 4;
/// What stands for no score, and for a row that does not exist.
pub const LOWEST: f32 = -1e30;

/// What a kernel is compiled for.
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
    /// That of a kernel that reads `qkv`, in float16 or bfloat16.
    pub fn new(qkv: &CubeTensor, drops: bool, groups: usize) -> Self {
        let half = if qkv.dtype == DType::F16 { Half::F16 } else { Half::BF16 };
        Self { half, drops, groups }
    }

    /// Units of a cube.
    pub const fn units(self) -> usize {
        self.groups * GROUP
    }

    /// Rows of a cube.
    pub const fn high(self) -> usize {
        self.groups * ROWS
    }

    /// Rows by the rows of a tile, over the width of a head.
    pub const fn scores(self) -> Product {
        let steps = [step(false); 2];
        Product { columns: BLOCK, half: self.half, across: [false; 2], steps, count: NUMBERS / STEP }
    }

    /// Weights by a tile, over its rows.
    pub const fn weighted(self) -> Product {
        let steps = [0, step(true)];
        Product { columns: NUMBERS, half: self.half, across: [false, true], steps, count: BLOCK / STEP }
    }
}

/// Describes to the tensor cores what lies at `at`.
#[cube]
pub fn described(at: u32) -> u64 {
    comptime!(descriptor(VECTOR_BYTES)) + (at / VECTOR_BYTES as u32) as u64
}

/// The largest of what four units have.
#[cube]
pub fn largest_of_four(x: f32) -> f32 {
    let x = f32::max(x, plane_shuffle_xor(x, 1u32));
    f32::max(x, plane_shuffle_xor(x, 2u32))
}

/// The sum of what four units have.
#[cube]
pub fn sum_of_four(x: f32) -> f32 {
    let x = x + plane_shuffle_xor(x, 1u32);
    x + plane_shuffle_xor(x, 2u32)
}

/// Numbers as a factor in registers.
#[cube]
pub fn factor(numbers: &Array<f32>, #[comptime] half: Half) -> Sequence<u32> {
    let mut pairs = Sequence::<u32>::new();
    #[unroll]
    for i in 0..comptime!(SCORES / 2) {
        pairs.push(ptx::packed(numbers[comptime!(2 * i)], numbers[comptime!(2 * i + 1)], half));
    }
    pairs
}

/// Writes two rows of sums, times what is given for each, where they are below `valid`.
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
