//! The instructions of the microkernels: the trait, and the portable version. AVX-512, with and
//! without bfloat16, and AVX2 are in `x86.rs`.

use burn::tensor::bf16;

use crate::halves::narrowed;
use crate::simd::{PORTABLE_IS_FUSED, Portable};

/// A microkernel's operations on vectors of 4-byte lanes.
///
/// # Safety
/// For every function the processor must have the set's instructions, and the caller be compiled
/// for them. Pointers must be valid for reads, or for writes where something is stored: of `LANES`
/// values, or of one lane in `repeat`. They need not be aligned.
pub trait InstructionSet: Copy {
    /// A vector of exactly `LANES` float32; also used for lanes of other contents.
    type Vector: Copy;
    /// Lanes in a vector, at most 16.
    const LANES: usize;
    /// Vectors in the width of a tile, chosen so that the accumulators fill the registers.
    const VECTORS: usize;
    /// Maximum number of lanes of k in a block: a panel of this depth takes part of a core's own
    /// cache, and leaves room for the streamed rows.
    const DEPTH: usize;

    /// Zeros.
    #[inline(always)]
    unsafe fn zero() -> Self::Vector {
        // SAFETY: all zero bits are a valid vector of numbers.
        unsafe { std::mem::zeroed() }
    }
    /// From memory.
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<Self::Vector>().read_unaligned() }
    }
    /// To memory.
    #[inline(always)]
    unsafe fn store(to: *mut f32, values: Self::Vector) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Self::Vector>().write_unaligned(values) };
    }
    /// Stores float32 as the nearest bfloat16.
    #[inline(always)]
    unsafe fn store_bf16(to: *mut bf16, values: Self::Vector) {
        // SAFETY: the caller's promise.
        unsafe { store_narrowed::<Self>(to, values) };
    }
    /// Broadcasts one lane.
    unsafe fn repeat(lane: *const u32) -> Self::Vector;
    /// `a + b` of float32.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a b + c`, where the lanes of a and b hold what the set multiplies, and the lanes of c are
    /// float32.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// Transposes the first `LANES` vectors.
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self::Vector; 16]) {
        let mut values = [[0f32; 16]; 16];
        // SAFETY: the array has room for any vector.
        unsafe {
            for (row, values) in rows.iter().zip(&mut values).take(Self::LANES) {
                Self::store(values.as_mut_ptr(), *row);
            }
            for (column, row) in rows.iter_mut().enumerate().take(Self::LANES) {
                let mut turned = [0f32; 16];
                for (turned, values) in turned.iter_mut().zip(&values) {
                    *turned = values[column];
                }
                *row = Self::load(turned.as_ptr());
            }
        }
    }
}

/// [`InstructionSet::store_bf16`] for sets without an instruction that rounds a vector.
///
/// # Safety
/// As that function's.
#[inline(always)]
pub unsafe fn store_narrowed<S: InstructionSet>(to: *mut bf16, values: S::Vector) {
    let mut wide = [0f32; 16];
    // SAFETY: the caller's promise; the array has room for any vector.
    unsafe {
        S::store(wide.as_mut_ptr(), values);
        for (i, value) in wide.iter().enumerate().take(S::LANES) {
            to.add(i).write_unaligned(narrowed(*value));
        }
    }
}

// Four values, in loops that the compiler vectorises.
impl InstructionSet for Portable {
    type Vector = [f32; 4];
    const LANES: usize = 4;
    // AArch64 has 32 registers, others 16.
    const VECTORS: usize = if cfg!(target_arch = "aarch64") { 4 } else { 2 };
    const DEPTH: usize = 384;

    #[inline(always)]
    unsafe fn repeat(lane: *const u32) -> [f32; 4] {
        // SAFETY: the caller's promise.
        [f32::from_bits(unsafe { lane.read_unaligned() }); 4]
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn multiply_add(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        // Without an FMA instruction, `mul_add` is a function call.
        std::array::from_fn(|i| if PORTABLE_IS_FUSED { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] })
    }
}
