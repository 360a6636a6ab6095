//! The instructions that tiles are made of: AVX-512, with and without bfloat16, AVX2, and what
//! every machine has.

use burn::tensor::bf16;

use super::pack::{Bf16Lane, F32Lane, Lane, WidenedLane};
#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{Compute, compute};
use crate::cpu::convert::narrowed;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, level};

/// Vectors of lanes of 4 bytes, and what a tile does with them.
pub trait InstructionSet: Copy {
    /// A vector of float32; also of lanes that hold something else.
    type Vector: Copy;
    /// Lanes in a vector, at most 16.
    const LANES: usize;
    /// Vectors side by side in a tile, such that the sums fill the registers.
    const VECTORS: usize;
    /// Lanes of k in a block, at most: a panel of that depth fits into a core's own cache, in part,
    /// along with what passes by.
    const DEPTH: usize;

    /// Zeros.
    unsafe fn zero() -> Self::Vector;
    /// From memory, which need not be aligned.
    unsafe fn load(from: *const f32) -> Self::Vector;
    /// To memory, which need not be aligned.
    unsafe fn store(to: *mut f32, values: Self::Vector);
    /// The nearest bfloat16 of float32 to memory, which need not be aligned.
    #[inline(always)]
    unsafe fn store_bf16(to: *mut bf16, values: Self::Vector) {
        let mut wide = [0f32; 16];
        // SAFETY: the caller's promise; the array has room for any vector.
        unsafe {
            Self::store(wide.as_mut_ptr(), values);
            for (i, value) in wide.iter().enumerate().take(Self::LANES) {
                to.add(i).write_unaligned(narrowed(*value));
            }
        }
    }
    /// One lane in all places; need not be aligned.
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
    /// Asks for a line that is written to later.
    #[inline(always)]
    unsafe fn prefetch(_place: *const u8) {}
}

/// A type that products multiply, and that results are stored as.
pub trait Element: Copy + Send + Sync + 'static {
    /// The function for the best instructions that there are.
    fn compute<O: Element>() -> Compute<Self, O>;
    /// The nearest value.
    fn nearest(value: f32) -> Self;
    /// To memory, which need not be aligned.
    unsafe fn store<S: InstructionSet>(to: *mut Self, values: S::Vector);
}

impl Element for f32 {
    fn compute<O: Element>() -> Compute<Self, O> {
        compute_at::<F32Lane, O>(level())
    }

    fn nearest(value: f32) -> Self {
        value
    }

    #[inline(always)]
    unsafe fn store<S: InstructionSet>(to: *mut Self, values: S::Vector) {
        // SAFETY: the caller's promise.
        unsafe { S::store(to, values) };
    }
}

impl Element for bf16 {
    fn compute<O: Element>() -> Compute<Self, O> {
        #[cfg(target_arch = "x86_64")]
        if multiplies_bf16() {
            return avx512_bf16::all::<Bf16Lane, O>;
        }
        compute_at::<WidenedLane, O>(level())
    }

    fn nearest(value: f32) -> Self {
        narrowed(value)
    }

    #[inline(always)]
    unsafe fn store<S: InstructionSet>(to: *mut Self, values: S::Vector) {
        // SAFETY: the caller's promise.
        unsafe { S::store_bf16(to, values) };
    }
}

/// Whether the processor multiplies bfloat16 as it is; without, its values are made float32 on the
/// way to a tile.
pub fn multiplies_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Functions of a set that are compiled for its instructions: those for tiles of 1 to 6 rows, and
/// [`compute`] with them.
macro_rules! compiled {
    ($name:ident, $set:ty $(, $features:literal)?; $($vectors:literal)*) => {
        mod $name {
            use super::super::tile::{self, Factor, Finish, Tile};
            use super::super::{Product, Target};
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn tile<O: Element, const ROWS: usize, const VECTORS: usize>(
                depth: usize,
                a: Factor,
                b: Factor,
                finish: &Finish<O>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { tile::tile::<$set, O, ROWS, VECTORS>(depth, a, b, finish) };
            }

            $(#[target_feature(enable = $features)])?
            pub unsafe fn all<L: Lane, O: Element>(
                product: &Product<L::Value>,
                c: Target<O>,
                rows: std::ops::Range<usize>,
                columns: std::ops::Range<usize>,
            ) {
                let tiles: [&[Tile<O>]; 6] = [
                    &[$(tile::<O, 1, $vectors>),*],
                    &[$(tile::<O, 2, $vectors>),*],
                    &[$(tile::<O, 3, $vectors>),*],
                    &[$(tile::<O, 4, $vectors>),*],
                    &[$(tile::<O, 5, $vectors>),*],
                    &[$(tile::<O, 6, $vectors>),*],
                ];
                // SAFETY: the caller's promise.
                unsafe { compute::<$set, L, O>(product, c, rows, columns, &tiles) };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
compiled!(avx512, Avx512, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"; 1 2 3 4);
#[cfg(target_arch = "x86_64")]
compiled!(avx512_bf16, x86::Avx512Bf16, "avx512bf16,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"; 1 2 3 4);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, Avx2, "avx2,fma"; 1 2);
#[cfg(target_arch = "aarch64")]
compiled!(portable, Portable; 1 2 3 4);
#[cfg(not(target_arch = "aarch64"))]
compiled!(portable, Portable; 1 2);

/// The function for these instructions, which the processor must have, and the lanes that they
/// multiply.
pub fn compute_at<L: Lane, O: Element>(level: Level) -> Compute<L::Value, O> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::all::<L, O>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::all::<L, O>,
        _ => portable::all::<L, O>,
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
    unsafe fn zero() -> [f32; 4] {
        [0.0; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, values: [f32; 4]) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(values) };
    }
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
