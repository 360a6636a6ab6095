//! One source, three instruction sets: a kernel's body is compiled for AVX-512, for AVX2 and for
//! the build's target, and the best one that the processor has is chosen at run time. The
//! environment variable `EMBER_SIMD` (`avx512`, `avx2` or `portable`) limits that choice, to
//! reproduce older machines. The last bits of results depend on the instruction set.
//!
//! Why not an existing crate: with `pulp` every loop would have to use its vector types;
//! `multiversion` supports neither the limit nor bodies that are generic over the instruction set.
//! Matrix products (`gemm`) use the same [`level`], but choose once per product, and have one more
//! set (AVX-512 with bfloat16).

use std::sync::OnceLock;

/// The environment variable that limits the choice.
pub const VARIABLE: &str = "EMBER_SIMD";

/// Instruction sets that kernels are compiled for, smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The baseline of the build's target.
    Portable,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512: F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// Its name in [`VARIABLE`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Its name in records of results, which other machines may read: [`Self::Portable`] has two
    /// names there, since its products are not rounded alike on all machines.
    pub fn arithmetic(self) -> &'static str {
        match self {
            Self::Portable if PORTABLE_IS_FUSED => "portable_fma",
            _ => self.name(),
        }
    }
}

/// Whether matrix products with [`Level::Portable`] are fused: `a b + c` is rounded once, as with the
/// other levels, since the build's target has an instruction for that.
pub const PORTABLE_IS_FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// The set that kernels use, fixed for the life of the process.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| best().min(limit().unwrap_or(Level::Avx512)))
}

/// The limit from the environment; the largest set if the variable is unset.
///
/// # Errors
/// A line with the variable's possible values.
pub fn limit() -> Result<Level, String> {
    match std::env::var_os(VARIABLE) {
        None => Ok(Level::Avx512),
        Some(value) => limit_of(&value.to_string_lossy()),
    }
}

fn limit_of(value: &str) -> Result<Level, String> {
    let mut levels = [Level::Portable, Level::Avx2, Level::Avx512].into_iter();
    levels.find(|level| level.name() == value).ok_or_else(|| {
        format!("the environment variable {VARIABLE} is {value:?}, not avx512, avx2 or portable; unset it to use the best that the processor has")
    })
}

/// The largest set that the processor has.
fn best() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
        {
            return Level::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Level::Avx2;
        }
    }
    Level::Portable
}

/// The instructions of [`Level::Portable`], as a type for traits over instruction sets.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

/// The instructions of [`Level::Avx2`].
#[derive(Clone, Copy, Debug)]
pub struct Avx2;

/// The instructions of [`Level::Avx512`]; with `BF16` also those that multiply pairs of bfloat16
/// and sum in float32, which the processor must have.
#[derive(Clone, Copy, Debug)]
pub struct Avx512<const BF16: bool = false>;

/// The instructions of [`Level::Avx512`], and VNNI, which multiplies pairs of integers and
/// accumulates in one instruction. The processor must have it: [`has_vnni`].
#[derive(Clone, Copy, Debug)]
pub struct Avx512Vnni;

/// Whether kernels may use [`Avx512Vnni`].
#[cfg(target_arch = "x86_64")]
pub fn has_vnni() -> bool {
    level() == Level::Avx512 && is_x86_feature_detected!("avx512vnni")
}

/// Defines functions whose body is compiled once per instruction set, with dispatch at run time.
///
/// The loops inside are plain Rust over slices; the compiler vectorises them. `mul_add` is one
/// instruction in every version but the portable one. A body that uses an instruction set
/// explicitly is an `unsafe fn name<I: Trait>`, compiled with [`Portable`], [`Avx2`] and [`Avx512`]
/// as `I`; its callers promise its other safety requirements.
#[macro_export]
macro_rules! simd_versions {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $type),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                fn avx512($($arg: $type),*) $(-> $ret)? { body($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) $(-> $ret)? { body($($arg),*) }
                match $crate::simd::level() {
                    // SAFETY: `level` found these instructions.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Portable => {}
                }
            }
            body($($arg),*)
        }
    )*};
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<$set:ident: $bound:path $(, $other:ident: $also:path)*>(
        $($arg:ident: $type:ty),* $(,)?
    ) $body:block) => {
        $(#[$meta])*
        $vis unsafe fn $name<$($other: $also),*>($($arg: $type),*) {
            #[inline(always)]
            unsafe fn body<$set: $bound $(, $other: $also)*>($($arg: $type),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                unsafe fn avx512<$($other: $also),*>($($arg: $type),*) {
                    // SAFETY: the caller's promise.
                    unsafe { body::<$crate::simd::Avx512 $(, $other)*>($($arg),*) };
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2<$($other: $also),*>($($arg: $type),*) {
                    // SAFETY: the caller's promise.
                    unsafe { body::<$crate::simd::Avx2 $(, $other)*>($($arg),*) };
                }
                match $crate::simd::level() {
                    // SAFETY: `level` found these instructions; otherwise the caller's promise.
                    $crate::simd::Level::Avx512 => return unsafe { avx512::<$($other),*>($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2::<$($other),*>($($arg),*) },
                    $crate::simd::Level::Portable => {}
                }
            }
            // SAFETY: the caller's promise.
            unsafe { body::<$crate::simd::Portable $(, $other)*>($($arg),*) };
        }
    };
}

/// Prefetches `bytes` bytes at `place` into the cache of level `LEVEL`, 1 or 2; does nothing except
/// on x86-64. Nothing is read, so the address need not be valid.
#[inline(always)]
pub fn prefetch<const LEVEL: u8, T>(place: *const T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        let line = place.cast::<i8>().wrapping_add(line);
        // SAFETY: every x86-64 processor has the instruction.
        unsafe {
            match LEVEL {
                1 => _mm_prefetch::<_MM_HINT_T0>(line),
                _ => _mm_prefetch::<_MM_HINT_T1>(line),
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (place, bytes);
}

/// Independent partial sums of a reduction: enough to keep the widest vector unit busy. Their
/// number fixes the order of summation.
const LANES: usize = 16;

/// The sum of `f` over the elements of the slices in `of`, taken index by index, always in the same
/// order. All slices are as long as the first.
///
/// It takes slices, not a function of the index, so that lengths are checked once for all lanes: a
/// bounds check per value would prevent vectorisation.
#[inline(always)]
pub fn sum<T: Copy, const N: usize>(of: [&[T]; N], f: impl Fn([T; N]) -> f32) -> f32 {
    let n = of[0].len();
    let parts = of.map(|values| values[..n].as_chunks::<LANES>());
    let mut lanes = [0f32; LANES];
    for chunk in 0..n / LANES {
        let chunks = parts.map(|(chunks, _)| &chunks[chunk]);
        for (lane, partial) in lanes.iter_mut().enumerate() {
            *partial += f(chunks.map(|chunk| chunk[lane]));
        }
    }
    let mut total = lanes.iter().sum::<f32>();
    for i in 0..n % LANES {
        total += f(parts.map(|(_, rest)| rest[i]));
    }
    total
}

simd_versions! {
    /// `total += part`.
    pub fn add(total: &mut [f32], part: &[f32]) {
        for (total, part) in total.iter_mut().zip(part) {
            *total += part;
        }
    }
}

/// The sum of vectors of `n` values, first to last.
pub fn sum_of<'a>(vectors: impl IntoIterator<Item = &'a Vec<f32>>, n: usize) -> Vec<f32> {
    let mut total = vec![0.0; n];
    vectors.into_iter().for_each(|vector| add(&mut total, vector));
    total
}

/// The largest of `values`; negative infinity if there are none.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = lane.max(*value);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, b| a.max(*b))
}

/// `e^x` to about one unit in the last place, in operations that vectorise: `x = n ln 2 + r`, a
/// polynomial for `e^r` (coefficients of Cephes' `expf`), and `2^n` written into the exponent bits.
/// Below -87 and above 88 it saturates.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    // ln 2 in two parts, the first exact in few bits, so that r keeps its precision.
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let mut p = 1.987_569_1e-4_f32;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = p.mul_add(r, coefficient);
    }
    let p = p.mul_add(r * r, r) + 1.0;
    // SAFETY: n is between -126 and 127 after the clamp, or NaN, which becomes 0; the product below
    // is then NaN again.
    let n = if n.is_nan() { 0 } else { unsafe { n.to_int_unchecked::<i32>() } };
    p * f32::from_bits(((n + 127) << 23) as u32)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        for i in -8700..8800 {
            let x = i as f32 * 0.01 + 0.003;
            let (got, want) = (exp(x.min(88.0)), (x.min(88.0) as f64).exp());
            assert!((got as f64 - want).abs() <= 2.5e-7 * want, "exp({x}) = {got}, not {want}");
        }
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn a_limit_is_one_of_three_words() {
        assert!(Level::Portable < Level::Avx2 && Level::Avx2 < Level::Avx512);
        assert_eq!(limit_of("avx2"), Ok(Level::Avx2));
        assert_eq!(limit_of("portable"), Ok(Level::Portable));
        assert!(limit_of("portable_fma").is_err());
        assert!(limit_of("AVX2").unwrap_err().contains("\"AVX2\", not avx512, avx2 or portable"));
    }

    #[test]
    fn sum_and_max_see_every_value() {
        for n in [0, 1, 15, 16, 17, 100] {
            let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(sum([&values], |[x]| x), (0..n).sum::<usize>() as f32);
            assert_eq!(sum([&values, &values], |[x, y]| x - y), 0.0);
            assert_eq!(max(&values), n.checked_sub(1).map_or(f32::NEG_INFINITY, |last| last as f32));
        }
    }
}
