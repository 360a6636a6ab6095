//! Bulk conversion between float32 and the two half types.

use burn::tensor::{bf16, f16};
use bytemuck::Pod;
use rayon::prelude::*;

use crate::{fill::by_rows, fill::unfilled, simd_versions};

/// Values per task.
const CHUNK: usize = 16_384;

/// The values of `x` converted by `f`, in parallel chunks.
pub fn converted<A: Sync, B: Pod + Send>(x: &[A], f: fn(&[A], &mut [B])) -> Vec<B> {
    by_rows(CHUNK, [(x, 1)], 1, |[x], y| f(x, y))
}

/// Values of each input that are in float32 at once, so that all of them fit in the first-level
/// cache.
const PIECE: usize = 1024;

/// Applies `f`, which computes in float32, to bfloat16 inputs and rounds its result to bfloat16.
/// The float32 values stay in the cache.
pub fn in_float32<const N: usize>(inputs: [&[bf16]; N], f: impl Fn([&[f32]; N], &mut [f32]) + Sync) -> Vec<bf16> {
    let mut y = unfilled(inputs[0].len());
    y.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, y)| {
        let (mut wide, mut result) = ([[0f32; PIECE]; N], [0f32; PIECE]);
        for (piece, y) in y.chunks_mut(PIECE).enumerate() {
            let first = chunk * CHUNK + piece * PIECE;
            for (wide, input) in wide.iter_mut().zip(inputs) {
                widen_bf16(&input[first..][..y.len()], &mut wide[..y.len()]);
            }
            f(std::array::from_fn(|i| &wide[i][..y.len()]), &mut result[..y.len()]);
            narrow_bf16(&result[..y.len()], y);
        }
    });
    y
}

// Written in integer operations without branches, which the compiler vectorises; the types' own
// conversions take one value at a time.

/// A bfloat16 as float32, exactly.
#[inline(always)]
pub fn widened(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// A float32 as the nearest bfloat16, ties to even.
#[inline(always)]
pub fn narrowed(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // Keeps a NaN whose payload is entirely in the lower half.
    let nan = (bits >> 16) | 0x40;
    bf16::from_bits(if x.is_nan() { nan } else { rounded } as u16)
}

simd_versions! {
    /// bfloat16 as float32, exactly.
    pub fn widen_bf16(x: &[bf16], y: &mut [f32]) {
        for (x, y) in x.iter().zip(y) {
            *y = widened(*x);
        }
    }

    /// float32 as the nearest bfloat16, ties to even.
    pub fn narrow_bf16(x: &[f32], y: &mut [bf16]) {
        for (x, y) in x.iter().zip(y) {
            *y = narrowed(*x);
        }
    }

    /// float16 as float32, exactly.
    pub fn widen_f16(x: &[f16], y: &mut [f32]) {
        for (x, y) in x.iter().zip(y) {
            let bits = u32::from(x.to_bits());
            let magnitude = (bits & 0x7fff) << 13;
            // The exponent's bias is 127 in float32 and 15 in float16; infinity and NaN get the
            // largest exponent. A subnormal number gets an implicit leading 1, which the
            // subtraction removes exactly.
            let normal = magnitude + ((127 - 15) << 23);
            let special = magnitude + ((255 - 31) << 23);
            let small = f32::from_bits(magnitude + ((127 - 14) << 23)) - f32::from_bits((127 - 14) << 23);
            let exponent = bits & 0x7c00;
            let value = if exponent == 0 { small.to_bits() } else if exponent == 0x7c00 { special } else { normal };
            *y = f32::from_bits(value | ((bits & 0x8000) << 16));
        }
    }

    /// float32 as the nearest float16, ties to even; infinite from 65,520 up.
    pub fn narrow_f16(x: &[f32], y: &mut [f16]) {
        for (x, y) in x.iter().zip(y) {
            let bits = x.to_bits();
            let magnitude = bits & 0x7fff_ffff;
            let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
            // Adding 1/2 to a number below 2^-14 shifts it to where the last bit is worth 2^-24,
            // and the addition rounds it.
            let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(126 << 23);
            let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
            // 65,520 is halfway from the largest float16 to the next power of two.
            let value = if magnitude >= 0x477f_f000 { special } else if magnitude < 0x3880_0000 { small } else { normal };
            *y = f16::from_bits((value | ((bits >> 16) & 0x8000)) as u16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use itertools::Itertools;

    #[test]
    fn every_half_widens_as_its_type_does() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let (b, h): (Vec<_>, Vec<_>) = all.iter().map(|&bits| (bf16::from_bits(bits), f16::from_bits(bits))).unzip();
        for (x, y) in b.iter().zip_eq(converted(&b, widen_bf16)) {
            assert!(y.to_bits() == x.to_f32().to_bits() || (x.is_nan() && y.is_nan()), "{x} {y}");
        }
        for (x, y) in h.iter().zip_eq(converted(&h, widen_f16)) {
            assert!(y.to_bits() == x.to_f32().to_bits() || (x.is_nan() && y.is_nan()), "{x} {y}");
        }
    }

    /// Every 4,099th float32 (a prime), and those around every float16: including ties and the ends
    /// of the ranges.
    #[test]
    fn float32_narrows_as_the_types_do() {
        let mut x: Vec<f32> = (0..=u32::MAX).step_by(4099).map(f32::from_bits).collect();
        for half in (0..=u16::MAX).map(f16::from_bits).filter(|half| half.is_finite()) {
            let (this, next) = (half.to_f32(), f16::from_bits(half.to_bits().wrapping_add(1)).to_f32());
            let tie = (this + next) / 2.0;
            x.extend([this, tie, f32::from_bits(tie.to_bits() ^ 1), f32::from_bits(tie.to_bits().wrapping_add(1))]);
        }
        for ((x, b), h) in x.iter().zip_eq(converted(&x, narrow_bf16)).zip_eq(converted(&x, narrow_f16)) {
            assert!(b.to_bits() == bf16::from_f32(*x).to_bits() || (x.is_nan() && b.is_nan()), "{x} {b}");
            assert!(h.to_bits() == f16::from_f32(*x).to_bits() || (x.is_nan() && h.is_nan()), "{x} {h}");
        }
    }
}
