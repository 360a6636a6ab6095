//! Arithmetic on 16-bit floats: computed in a wider type, then rounded once.

use crate::{
    lanes::Outcome,
    number::*,
    ptx::{Arithmetic as A, Ty},
};

pub fn half(f: A, ty: Ty, v: &[f32]) -> Outcome<u16> {
    let wide = match f {
        A::Add => v[0] as f64 + v[1] as f64,
        A::Sub => v[0] as f64 - v[1] as f64,
        A::Mul => v[0] as f64 * v[1] as f64,
        A::Fma | A::Mad => fused(v[0], v[1], v[2]),
        A::FmaRelu => fused(v[0], v[1], v[2]).max(0.0),
        A::Min => v[0].min(v[1]) as f64,
        A::Max => v[0].max(v[1]) as f64,
        A::MinNan => {
            if v[0].is_nan() || v[1].is_nan() {
                f64::NAN
            } else {
                v[0].min(v[1]) as f64
            }
        }
        A::MaxNan => {
            if v[0].is_nan() || v[1].is_nan() {
                f64::NAN
            } else {
                v[0].max(v[1]) as f64
            }
        }
        A::Neg => -v[0] as f64,
        A::Abs => v[0].abs() as f64,
        A::Ex2 => v[0].exp2() as f64,
        A::Tanh => v[0].tanh() as f64,
        _ => return Err(format!("{f:?} of {ty:?} is not known")),
    };
    Ok(if ty == Ty::BF16 { to_bf16(to_odd(wide)) } else { to_f16(to_odd(wide)) })
}

/// `x * y + z` rounded to odd: float64 holds the product, but not always the sum, since bfloat16 has
/// as many exponents as float32.
fn fused(x: f32, y: f32, z: f32) -> f64 {
    let (product, z) = (x as f64 * y as f64, z as f64);
    let sum = product + z;
    // What the sum lost, exactly (Knuth's two-sum).
    let added = sum - product;
    odd_beside(sum, (product - (sum - added)) + (z - added))
}
