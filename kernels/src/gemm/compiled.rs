//! The loops compiled for each instruction set, and which version each type uses.

use burn::tensor::bf16;

use super::pack::{Bf16Lane, F32Lane, Lane, WidenedLane};
use super::product::{Compute, Element, Product};
use super::tile::{self, Epilogue, Factor, Microkernel};
use super::{blocks::compute, instructions::InstructionSet, matrix::MatrixMut};
use crate::halves::narrowed;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, level};

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

/// Whether the processor multiplies bfloat16 directly; otherwise values are converted to float32
/// when they are packed.
pub fn multiplies_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Functions compiled for an instruction set: microkernels of 1 to 6 rows, and [`compute`] with
/// them.
macro_rules! compiled {
    ($name:ident, $set:ty $(, $features:literal)?; $($vectors:literal)*) => {
        mod $name {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn microkernel<O: Element, const ROWS: usize, const VECTORS: usize>(
                depth: usize,
                a: Factor,
                b: Factor,
                epilogue: &Epilogue<O>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { tile::microkernel::<$set, O, ROWS, VECTORS>(depth, a, b, epilogue) };
            }

            $(#[target_feature(enable = $features)])?
            pub unsafe fn all<L: Lane, O: Element>(
                product: &Product<L::Value>,
                c: &MatrixMut<O>,
                rows: std::ops::Range<usize>,
                columns: std::ops::Range<usize>,
            ) {
                let microkernels: [&[Microkernel<O>]; 6] = [
                    &[$(microkernel::<O, 1, $vectors>),*],
                    &[$(microkernel::<O, 2, $vectors>),*],
                    &[$(microkernel::<O, 3, $vectors>),*],
                    &[$(microkernel::<O, 4, $vectors>),*],
                    &[$(microkernel::<O, 5, $vectors>),*],
                    &[$(microkernel::<O, 6, $vectors>),*],
                ];
                // SAFETY: the caller's promise.
                unsafe { compute::<$set, L, O>(product, c, rows, columns, &microkernels) };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
compiled!(avx512, Avx512, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"; 1 2 3 4);
#[cfg(target_arch = "x86_64")]
compiled!(avx512_bf16, Avx512<true>, "avx512bf16,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"; 1 2 3 4);
#[cfg(target_arch = "x86_64")]
compiled!(avx2, Avx2, "avx2,fma"; 1 2);
#[cfg(target_arch = "aarch64")]
compiled!(portable, Portable; 1 2 3 4);
#[cfg(not(target_arch = "aarch64"))]
compiled!(portable, Portable; 1 2);

/// The function for these instructions, which the processor must have, with lanes `L`.
pub fn compute_at<L: Lane, O: Element>(level: Level) -> Compute<L::Value, O> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::all::<L, O>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::all::<L, O>,
        _ => portable::all::<L, O>,
    }
}
