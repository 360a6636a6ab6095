//! Between float32 and the two half types, values in bulk.

use burn::tensor::{bf16, f16};
use bytemuck::Pod;
use rayon::prelude::*;

use crate::{fill::by_rows, fill::unfilled, simd_versions};

/// Values one task takes.
const CHUNK: usize = 16_384;

/// The values that `f` makes of these, piece by piece.
pub fn converted<A: Sync, B: Pod + Send>(x: &[A], f: fn(&[A], &mut [B])) -> Vec<B> {
    by_rows(CHUNK, [(x, 1)], 1, |[x], y| f(x, y))
}

/// Values that are in float32 at once, for each of a few rows of them: all in the first-level
/// cache.
const PIECE: usize = 1024;

/// What `f` makes of values, in float32; they come and go as bfloat16, and no float32 of them
/// reaches memory.
pub fn in_float32<const N: usize>(of: [&[bf16]; N], f: impl Fn([&[f32]; N], &mut [f32]) + Sync) -> Vec<bf16> {
    let mut y = unfilled(of[0].len());
    y.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, y)| {
        let (mut wide, mut made) = ([[0f32; PIECE]; N], [0f32; PIECE]);
        for (piece, y) in y.chunks_mut(PIECE).enumerate() {
            let first = chunk * CHUNK + piece * PIECE;
            for (wide, of) in wide.iter_mut().zip(of) {
                widen_bf16(&of[first..][..y.len()], &mut wide[..y.len()]);
            }
            f(std::array::from_fn(|i| &wide[i][..y.len()]), &mut made[..y.len()]);
            narrow_bf16(&made[..y.len()], y);
        }
    });
    y
}

// Written in whole-number operations without branches, which the compiler turns into vectors; the
// types' own conversions go one value at a time.

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
    // A NaN stays one even where its bits are all in the lower half.
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
            // The exponent's offset is 127 here and 15 there; infinity and NaN go all the way up.
            // What is below the normal numbers gets one more exponent, which the subtraction takes
            // away exactly.
            let normal = magnitude + ((127 - 15) << 23);
            let special = magnitude + ((255 - 31) << 23);
            let small = f32::from_bits(magnitude + ((127 - 14) << 23)) - f32::from_bits((127 - 14) << 23);
            let exponent = bits & 0x7c00;
            let value = if exponent == 0 { small.to_bits() } else if exponent == 0x7c00 { special } else { normal };
            *y = f32::from_bits(value | ((bits & 0x8000) << 16));
        }
    }

    /// float32 as the nearest float16, ties to even; infinite from 65,520 on.
    pub fn narrow_f16(x: &[f32], y: &mut [f16]) {
        for (x, y) in x.iter().zip(y) {
            let bits = x.to_bits();
            let magnitude = bits & 0x7fff_ffff;
            let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
            // Adding 1/2 puts a number below 2^-14 where its last bit is worth 2^-24, and the
            // addition rounds it.
            let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(126 << 23);
            let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
            // 65,520 and above: halfway from the largest float16 to the next power of two.
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

    /// A float32 in every 4,099 (a prime), and those around every float16: ties and the ends of the
    /// ranges among them.
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
