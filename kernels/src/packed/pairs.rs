//! Integer products, two rows of weights at a time: a column's two 8-bit weights times two 16-bit
//! values, added to a 32-bit sum. x86 has an instruction for the product, `vpmaddwd`, and newer
//! processors one that also accumulates, `vpdpwssd`; no compiler generates them from a loop.

use crate::simd::Portable;

/// Columns whose pairs of weights are adjacent.
pub const COLUMNS: usize = 16;

/// Two weights for each of [`COLUMNS`] columns.
pub type PairOfRows = [[i8; 2]; COLUMNS];

/// These products in an instruction set.
///
/// # Safety
/// For every function the processor must have the set's instructions, and the caller be compiled
/// for them.
pub trait Pairs {
    /// Whether the accumulators of several rows and a whole panel fit in its registers.
    const KEEPS_PANEL: bool = false;
    /// Weights of all columns in 16 bits.
    type Weights: Copy;
    /// A sum for each column: exactly [`COLUMNS`] numbers of 32 bits, in order.
    type Sums: Copy;

    /// Zeros.
    #[inline(always)]
    unsafe fn zero() -> Self::Sums {
        // SAFETY: all zero bits are valid integers.
        unsafe { std::mem::zeroed() }
    }
    /// Widens the weights to 16 bits.
    unsafe fn widen(weights: &PairOfRows) -> Self::Weights;
    /// `sums + weights[..][0] x[0] + weights[..][1] x[1]`
    unsafe fn add_products(sums: Self::Sums, weights: Self::Weights, x: &[i16; 2]) -> Self::Sums;
    /// Stores the sums in order.
    #[inline(always)]
    unsafe fn store(sums: Self::Sums, to: &mut [i32; COLUMNS]) {
        // SAFETY: `Sums` is as large as the array.
        unsafe { to.as_mut_ptr().cast::<Self::Sums>().write_unaligned(sums) };
    }
}

// In loops that the compiler vectorises.
impl Pairs for Portable {
    type Weights = [[i16; 2]; COLUMNS];
    type Sums = [i32; COLUMNS];

    #[inline(always)]
    unsafe fn widen(weights: &PairOfRows) -> Self::Weights {
        weights.map(|pair| pair.map(i16::from))
    }
    #[inline(always)]
    unsafe fn add_products(sums: Self::Sums, weights: Self::Weights, x: &[i16; 2]) -> Self::Sums {
        let x = x.map(i32::from);
        std::array::from_fn(|i| sums[i] + i32::from(weights[i][0]) * x[0] + i32::from(weights[i][1]) * x[1])
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Every function is one instruction or a few, and runs only inside functions compiled for the
    //! set.
    #![allow(unsafe_op_in_unsafe_fn)]

    use std::arch::{asm, x86_64::*};

    use super::{PairOfRows, Pairs};
    use crate::simd::{Avx2, Avx512, Avx512Vnni};

    /// Two values as one 32-bit integer, the first in the lower half.
    #[inline(always)]
    fn packed_pair(x: &[i16; 2]) -> i32 {
        i32::from(x[1]) << 16 | i32::from(x[0] as u16)
    }

    impl Pairs for Avx2 {
        type Weights = [__m256i; 2];
        type Sums = [__m256i; 2];

        #[inline(always)]
        unsafe fn widen(weights: &PairOfRows) -> Self::Weights {
            let first = weights.as_ptr().cast::<__m128i>();
            [0, 1].map(|half| _mm256_cvtepi8_epi16(_mm_loadu_si128(first.add(half))))
        }
        #[inline(always)]
        unsafe fn add_products([a, b]: Self::Sums, [u, v]: Self::Weights, x: &[i16; 2]) -> Self::Sums {
            let x = _mm256_set1_epi32(packed_pair(x));
            [_mm256_add_epi32(a, _mm256_madd_epi16(u, x)), _mm256_add_epi32(b, _mm256_madd_epi16(v, x))]
        }
    }

    impl Pairs for Avx512 {
        const KEEPS_PANEL: bool = true;
        type Weights = __m512i;
        type Sums = __m512i;

        #[inline(always)]
        unsafe fn widen(weights: &PairOfRows) -> __m512i {
            _mm512_cvtepi8_epi16(_mm256_loadu_si256(weights.as_ptr().cast()))
        }
        #[inline(always)]
        unsafe fn add_products(sums: __m512i, weights: __m512i, x: &[i16; 2]) -> __m512i {
            _mm512_add_epi32(sums, _mm512_madd_epi16(weights, _mm512_set1_epi32(packed_pair(x))))
        }
    }

    impl Pairs for Avx512Vnni {
        const KEEPS_PANEL: bool = true;
        type Weights = __m512i;
        type Sums = __m512i;

        #[inline(always)]
        unsafe fn widen(weights: &PairOfRows) -> __m512i {
            Avx512::<false>::widen(weights)
        }
        #[inline(always)]
        unsafe fn add_products(sums: __m512i, weights: __m512i, x: &[i16; 2]) -> __m512i {
            dot(sums, weights, x)
        }
    }

    /// `vpdpwssd` as assembly: the compiler often replaces it by two instructions, which have lower
    /// latency but take half as long again when there are many rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn dot(mut sums: __m512i, weights: __m512i, x: &[i16; 2]) -> __m512i {
        asm!(
            "vpdpwssd {sums}, {weights}, dword ptr [{x}]{{1to16}}",
            sums = inlateout(zmm_reg) sums,
            weights = in(zmm_reg) weights,
            x = in(reg) x,
            options(pure, readonly, nostack, preserves_flags)
        );
        sums
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::simd::{Avx2, Avx512, Avx512Vnni};

    fn sums<P: Pairs>(weights: &PairOfRows, x: [[i16; 2]; 2]) -> [i32; COLUMNS] {
        let mut into = [0; COLUMNS];
        // SAFETY: the caller has checked the processor's features.
        unsafe {
            let weights = P::widen(weights);
            let sums = P::add_products(P::zero(), weights, &x[0]);
            P::store(P::add_products(sums, weights, &x[1]), &mut into);
        }
        into
    }

    proptest! {
        #[test]
        fn every_set_computes_the_same_whole_numbers(weights: PairOfRows, x: [[i16; 2]; 2]) {
            let want = weights.map(|[first, second]| {
                x.iter().map(|x| i32::from(first) * i32::from(x[0]) + i32::from(second) * i32::from(x[1])).sum::<i32>()
            });
            prop_assert_eq!(sums::<Portable>(&weights, x), want);
            #[cfg(target_arch = "x86_64")]
            {
                if is_x86_feature_detected!("avx2") {
                    prop_assert_eq!(sums::<Avx2>(&weights, x), want);
                }
                if is_x86_feature_detected!("avx512bw") {
                    prop_assert_eq!(sums::<Avx512>(&weights, x), want);
                }
                if is_x86_feature_detected!("avx512vnni") {
                    prop_assert_eq!(sums::<Avx512Vnni>(&weights, x), want);
                }
            }
        }
    }
}
