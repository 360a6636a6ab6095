//! Number formats without a Rust type: bfloat16, float16, TF32.

pub fn from_bf16(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

pub fn to_bf16(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

pub fn from_f16(bits: u16) -> f32 {
    let sign = ((bits & 0x8000) as u32) << 16;
    let exponent = (bits >> 10 & 31) as u32;
    let mantissa = (bits & 1023) as u32;
    let magnitude = match exponent {
        0 => (mantissa as f32 / (1 << 24) as f32).to_bits(),
        31 => 0x7f80_0000 | mantissa << 13,
        _ => (exponent + 112) << 23 | mantissa << 13,
    };
    f32::from_bits(sign | magnitude)
}

pub fn to_f16(value: f32) -> u16 {
    let sign = (value.to_bits() >> 16 & 0x8000) as u16;
    let size = value.abs();
    if size.is_nan() {
        return 0x7fff;
    }
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    if size < 2f32.powi(-14) {
        // Subnormal: a multiple of 2^-24.
        return sign | (size * 2f32.powi(24)).round_ties_even() as u16;
    }
    let bits = size.to_bits();
    let rounded = bits + 0xfff + (bits >> 13 & 1);
    sign | ((rounded >> 13) - (112 << 10)) as u16
}

/// Rounds to odd: toward zero, and then sets the last bit unless the value was exact. Rounding this
/// again, to fewer bits, gives what rounding `exact` once does (Boldo and Melquiond, "Emulation of
/// FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd", 2008).
pub fn to_odd(exact: f64) -> f32 {
    let near = exact as f32;
    if near.is_nan() || near as f64 == exact {
        return near;
    }
    let is_beyond = (near as f64).abs() > exact.abs();
    f32::from_bits((near.to_bits() - is_beyond as u32) | 1)
}

/// `near + lost` rounded to odd, as [`to_odd`], where `near` is the float64 nearest to that sum. Of
/// `lost` only the sign counts.
pub fn odd_beside(near: f64, lost: f64) -> f64 {
    let is_even = near.to_bits() & 1 == 0;
    if is_even && lost > 0.0 {
        near.next_up()
    } else if is_even && lost < 0.0 {
        near.next_down()
    } else {
        near
    }
}

/// Rounds to nearest, ties away from zero, as `cvt.rna.tf32.f32`.
pub fn to_tf32(value: f32) -> f32 {
    if !value.is_finite() {
        return value;
    }
    f32::from_bits((value.to_bits() + 0x1000) & !0x1fff)
}
