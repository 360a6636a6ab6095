//! The instructions that tiles are made of: what they must do, and how every machine does it;
//! AVX-512, with and without bfloat16, and AVX2 are in `x86.rs`.

use burn::tensor::bf16;

use crate::{halves::narrowed, simd::Portable};

/// Vectors of lanes of 4 bytes, and what a tile does with them.
///
/// # Safety
/// For each of the functions the processor must have the set's instructions, and the caller be
/// compiled for them. A pointer must be to memory that may be read, or written where something is
/// stored: of `LANES` values, and of one lane where that is repeated. It need not be aligned.
pub trait InstructionSet: Copy {
    /// A vector of float32, `LANES` of them and nothing else; also of lanes that hold something
    /// else.
    type Vector: Copy;
    /// Lanes in a vector, at most 16.
    const LANES: usize;
    /// Vectors side by side in a tile, such that the sums fill the registers.
    const VECTORS: usize;
    /// Lanes of k in a block, at most: a panel of that depth fits into a core's own cache, in part,
    /// along with what passes by.
    const DEPTH: usize;

    /// Zeros.
    #[inline(always)]
    unsafe fn zero() -> Self::Vector {
        // SAFETY: a vector of numbers.
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
    /// The nearest bfloat16 of float32 to memory.
    #[inline(always)]
    unsafe fn store_bf16(to: *mut bf16, values: Self::Vector) {
        // SAFETY: the caller's promise.
        unsafe { store_narrowed::<Self>(to, values) };
    }
    /// One lane in all places.
    unsafe fn repeat(lane: *const u32) -> Self::Vector;
    /// `a + b` of float32.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a b + c`, where each lane of a and b holds what the set multiplies, and of c a float32.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// Rows and columns of the first `LANES` vectors exchanged.
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

/// [`InstructionSet::store_bf16`] where no instruction rounds a vector.
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

// Four values, in loops that the compiler makes vectors of.
impl InstructionSet for Portable {
    type Vector = [f32; 4];
    const LANES: usize = 4;
    // 32 registers there, 16 elsewhere.
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
        // `mul_add` is a call of a function where there is no instruction for it.
        let fused = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
        std::array::from_fn(|i| if fused { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] })
    }
}
