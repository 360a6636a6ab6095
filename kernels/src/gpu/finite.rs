//! Tests for finite numbers by their bits: GPU compilers may assume that no number is infinite or
//! NaN, and functions such as `exp` may return a finite number for NaN.

use cubecl::prelude::*;

/// Below every logit, but finite: the difference of two infinities is NaN.
pub const LOWEST: f32 = -3.0e38;

/// Whether `x` is neither infinite nor NaN.
#[cube]
pub fn is_finite(x: f32) -> bool {
    (u32::reinterpret(x) & 0x7f80_0000) != 0x7f80_0000
}

/// Whether `x` is NaN or plus infinity; minus infinity counts as the smallest number.
#[cube]
pub fn is_nan_or_plus_infinity(x: f32) -> bool {
    !is_finite(x) && u32::reinterpret(x) != 0xff80_0000
}
