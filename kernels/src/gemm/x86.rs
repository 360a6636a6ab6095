//! The instruction sets of x86.
//!
//! Every function here is one instruction or a few, on registers or on memory that the caller
//! guarantees, and runs only inside functions compiled for the set. An unsafe block in each would
//! repeat this some forty times.
#![allow(unsafe_op_in_unsafe_fn)]

use std::{arch::x86_64::*, mem::transmute};

use burn::tensor::bf16;

use super::instructions::{InstructionSet, store_narrowed};
use crate::simd::{Avx2, Avx512};

// 24 of 32 registers are accumulators.
impl<const BF16: bool> InstructionSet for Avx512<BF16> {
    type Vector = __m512;
    const LANES: usize = 16;
    const VECTORS: usize = 4;
    const DEPTH: usize = 768;

    #[inline(always)]
    unsafe fn repeat(lane: *const u32) -> __m512 {
        _mm512_castsi512_ps(_mm512_set1_epi32(lane.cast::<i32>().read_unaligned()))
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        if BF16 {
            _mm512_dpbf16_ps(c, transmute::<__m512, __m512bh>(a), transmute::<__m512, __m512bh>(b))
        } else {
            _mm512_fmadd_ps(a, b, c)
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut bf16, values: __m512) {
        if BF16 {
            let halves: __m256i = transmute(_mm512_cvtneps_pbh(values));
            _mm256_storeu_si256(to.cast(), halves);
        } else {
            store_narrowed::<Self>(to, values);
        }
    }
    // Interleaves pairs of rows, then pairs of pairs, then twice the 128-bit quarters of the
    // vectors.
    #[inline(always)]
    unsafe fn transpose(rows: &mut [__m512; 16]) {
        let mut a = [_mm512_setzero_ps(); 16];
        for i in 0..8 {
            a[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
            a[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
        }
        let mut b = [_mm512_setzero_ps(); 16];
        for i in 0..4 {
            for half in 0..2 {
                let (x, y) = (_mm512_castps_pd(a[4 * i + half]), _mm512_castps_pd(a[4 * i + 2 + half]));
                b[4 * i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
                b[4 * i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
            }
        }
        // Now quarter q of b[4 i + j] is column 4 q + j of rows 4 i to 4 i + 3.
        for j in 0..4 {
            let low_even = _mm512_shuffle_f32x4::<0x88>(b[j], b[4 + j]);
            let low_odd = _mm512_shuffle_f32x4::<0xdd>(b[j], b[4 + j]);
            let high_even = _mm512_shuffle_f32x4::<0x88>(b[8 + j], b[12 + j]);
            let high_odd = _mm512_shuffle_f32x4::<0xdd>(b[8 + j], b[12 + j]);
            rows[j] = _mm512_shuffle_f32x4::<0x88>(low_even, high_even);
            rows[4 + j] = _mm512_shuffle_f32x4::<0x88>(low_odd, high_odd);
            rows[8 + j] = _mm512_shuffle_f32x4::<0xdd>(low_even, high_even);
            rows[12 + j] = _mm512_shuffle_f32x4::<0xdd>(low_odd, high_odd);
        }
    }
}

// 12 of 16 registers are accumulators.
impl InstructionSet for Avx2 {
    type Vector = __m256;
    const LANES: usize = 8;
    const VECTORS: usize = 2;
    const DEPTH: usize = 384;

    #[inline(always)]
    unsafe fn repeat(lane: *const u32) -> __m256 {
        _mm256_set1_ps(lane.cast::<f32>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [__m256; 16]) {
        let mut a = [_mm256_setzero_ps(); 8];
        for i in 0..4 {
            a[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
            a[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
        }
        let mut b = [_mm256_setzero_ps(); 8];
        for i in 0..2 {
            for half in 0..2 {
                b[4 * i + 2 * half] = _mm256_shuffle_ps::<0x44>(a[4 * i + half], a[4 * i + 2 + half]);
                b[4 * i + 2 * half + 1] = _mm256_shuffle_ps::<0xee>(a[4 * i + half], a[4 * i + 2 + half]);
            }
        }
        for j in 0..4 {
            rows[j] = _mm256_permute2f128_ps::<0x20>(b[j], b[4 + j]);
            rows[4 + j] = _mm256_permute2f128_ps::<0x31>(b[j], b[4 + j]);
        }
    }
}
