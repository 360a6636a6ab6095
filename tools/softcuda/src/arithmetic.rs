//! Arithmetic instructions on registers.

use crate::{
    block::Block,
    conversion::directed,
    half::half,
    lanes::{LANES, Lanes, Outcome},
    number::*,
    ptx::{Arithmetic as A, *},
    warp::Warp,
};

impl Block<'_> {
    #[allow(clippy::too_many_arguments)]
    pub fn compute(
        &mut self,
        warp: &mut Warp,
        f: A,
        ty: Ty,
        round: Round,
        d: Reg,
        args: &[Src],
        immediate: u8,
        mask: u32,
    ) -> Outcome<()> {
        macro_rules! words {
            (|$a:ident| $e:expr) => {{
                let x = warp.word(args[0], self);
                let mut out = [0u32; LANES];
                for i in 0..LANES {
                    let $a = x[i];
                    out[i] = $e;
                }
                warp.set_word(d, &out, mask);
            }};
            (|$a:ident, $b:ident| $e:expr) => {{
                let (x, y) = (warp.word(args[0], self), warp.word(args[1], self));
                let mut out = [0u32; LANES];
                for i in 0..LANES {
                    let ($a, $b) = (x[i], y[i]);
                    out[i] = $e;
                }
                warp.set_word(d, &out, mask);
            }};
            (|$a:ident, $b:ident, $c:ident| $e:expr) => {{
                let (x, y, z) = (warp.word(args[0], self), warp.word(args[1], self), warp.word(args[2], self));
                let mut out = [0u32; LANES];
                for i in 0..LANES {
                    let ($a, $b, $c) = (x[i], y[i], z[i]);
                    out[i] = $e;
                }
                warp.set_word(d, &out, mask);
            }};
        }
        macro_rules! doubles {
            (|$a:ident| $e:expr) => {{
                let x = warp.double(args[0], self);
                let mut out = [0u64; LANES];
                for i in 0..LANES {
                    let $a = x[i];
                    out[i] = $e;
                }
                warp.set_double(d, &out, mask);
            }};
            (|$a:ident, $b:ident| $e:expr) => {{
                let (x, y) = (warp.double(args[0], self), warp.double(args[1], self));
                let mut out = [0u64; LANES];
                for i in 0..LANES {
                    let ($a, $b) = (x[i], y[i]);
                    out[i] = $e;
                }
                warp.set_double(d, &out, mask);
            }};
            (|$a:ident, $b:ident, $c:ident| $e:expr) => {{
                let (x, y, z) = (warp.double(args[0], self), warp.double(args[1], self), warp.double(args[2], self));
                let mut out = [0u64; LANES];
                for i in 0..LANES {
                    let ($a, $b, $c) = (x[i], y[i], z[i]);
                    out[i] = $e;
                }
                warp.set_double(d, &out, mask);
            }};
        }
        macro_rules! floats {
            (|$a:ident| $e:expr) => {
                words!(|x| {
                    let $a = f32::from_bits(x);
                    let v: f32 = $e;
                    v.to_bits()
                })
            };
            (|$a:ident, $b:ident| $e:expr) => {
                words!(|x, y| {
                    let ($a, $b) = (f32::from_bits(x), f32::from_bits(y));
                    let v: f32 = $e;
                    v.to_bits()
                })
            };
            (|$a:ident, $b:ident, $c:ident| $e:expr) => {
                words!(|x, y, z| {
                    let ($a, $b, $c) = (f32::from_bits(x), f32::from_bits(y), f32::from_bits(z));
                    let v: f32 = $e;
                    v.to_bits()
                })
            };
        }
        macro_rules! reals {
            (|$a:ident| $e:expr) => {
                doubles!(|x| {
                    let $a = f64::from_bits(x);
                    let v: f64 = $e;
                    v.to_bits()
                })
            };
            (|$a:ident, $b:ident| $e:expr) => {
                doubles!(|x, y| {
                    let ($a, $b) = (f64::from_bits(x), f64::from_bits(y));
                    let v: f64 = $e;
                    v.to_bits()
                })
            };
            (|$a:ident, $b:ident, $c:ident| $e:expr) => {
                doubles!(|x, y, z| {
                    let ($a, $b, $c) = (f64::from_bits(x), f64::from_bits(y), f64::from_bits(z));
                    let v: f64 = $e;
                    v.to_bits()
                })
            };
        }
        use Ty::*;
        let unsigned_min = |a: f32, b: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) };
        let unsigned_max = |a: f32, b: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) };
        match (f, ty) {
            (A::Mov, Pred) => {
                let bits = warp.bits(args[0]);
                warp.set_bits(d, bits, mask);
            }
            (A::And, Pred) => {
                let bits = warp.bits(args[0]) & warp.bits(args[1]);
                warp.set_bits(d, bits, mask);
            }
            (A::Or, Pred) => {
                let bits = warp.bits(args[0]) | warp.bits(args[1]);
                warp.set_bits(d, bits, mask);
            }
            (A::Xor, Pred) => {
                let bits = warp.bits(args[0]) ^ warp.bits(args[1]);
                warp.set_bits(d, bits, mask);
            }
            (A::Not, Pred) => {
                let bits = !warp.bits(args[0]);
                warp.set_bits(d, bits, mask);
            }
            (A::Selp, U64 | S64 | F64) => {
                let p = warp.bits(args[2]);
                let (x, y) = (warp.double(args[0], self), warp.double(args[1], self));
                warp.set_double(d, &std::array::from_fn(|i| if p >> i & 1 == 1 { x[i] } else { y[i] }), mask);
            }
            (A::Selp, _) => {
                let p = warp.bits(args[2]);
                let (x, y) = (warp.word(args[0], self), warp.word(args[1], self));
                warp.set_word(d, &std::array::from_fn(|i| if p >> i & 1 == 1 { x[i] } else { y[i] }), mask);
            }
            (A::Mov, U64 | S64 | F64) => doubles!(|a| a),
            (A::Mov, _) => words!(|a| a),
            (_, BF16 | F16) => {
                let wide = |v: u32| if ty == BF16 { from_bf16(v as u16) } else { from_f16(v as u16) };
                let lists: Vec<Lanes<u32>> = args.iter().map(|s| warp.word(*s, self)).collect();
                let mut out = [0; LANES];
                for i in 0..LANES {
                    out[i] = half(f, ty, &lists.iter().map(|l| wide(l[i])).collect::<Vec<_>>())? as u32;
                }
                warp.set_word(d, &out, mask);
            }
            (_, BF16x2 | F16x2) => {
                let one = if ty == BF16x2 { BF16 } else { F16 };
                let wide = |v: u32| if one == BF16 { from_bf16(v as u16) } else { from_f16(v as u16) };
                let lists: Vec<Lanes<u32>> = args.iter().map(|s| warp.word(*s, self)).collect();
                let mut out = [0; LANES];
                for i in 0..LANES {
                    let low = half(f, one, &lists.iter().map(|l| wide(l[i])).collect::<Vec<_>>())?;
                    let high = half(f, one, &lists.iter().map(|l| wide(l[i] >> 16)).collect::<Vec<_>>())?;
                    out[i] = low as u32 | (high as u32) << 16;
                }
                warp.set_word(d, &out, mask);
            }
            (A::Add | A::Sub | A::Mul | A::Fma, F32) if !matches!(round, Round::None | Round::Nearest) => {
                let lists: Vec<Lanes<u32>> = args.iter().map(|s| warp.word(*s, self)).collect();
                let real = |list: usize, i: usize| f32::from_bits(lists[list][i]) as f64;
                let out = std::array::from_fn(|i| {
                    let exact = match f {
                        A::Add => real(0, i) + real(1, i),
                        A::Sub => real(0, i) - real(1, i),
                        A::Mul => real(0, i) * real(1, i),
                        _ => real(0, i).mul_add(real(1, i), real(2, i)),
                    };
                    directed(exact, round).to_bits()
                });
                warp.set_word(d, &out, mask);
            }
            (A::Add, F32) => floats!(|a, b| a + b),
            (A::Sub, F32) => floats!(|a, b| a - b),
            (A::Mul, F32) => floats!(|a, b| a * b),
            (A::Fma | A::Mad, F32) => floats!(|a, b, c| a.mul_add(b, c)),
            (A::FmaRelu, F32) => floats!(|a, b, c| a.mul_add(b, c).max(0.0)),
            (A::Div, F32) => floats!(|a, b| a / b),
            (A::Min, F32) => floats!(|a, b| a.min(b)),
            (A::Max, F32) => floats!(|a, b| a.max(b)),
            (A::MinNan, F32) => floats!(|a, b| unsigned_min(a, b)),
            (A::MaxNan, F32) => floats!(|a, b| unsigned_max(a, b)),
            (A::Neg, F32) => floats!(|a| -a),
            (A::Abs, F32) => floats!(|a| a.abs()),
            (A::Sqrt, F32) => floats!(|a| a.sqrt()),
            (A::Rsqrt, F32) => floats!(|a| 1.0 / a.sqrt()),
            (A::Rcp, F32) => floats!(|a| 1.0 / a),
            (A::Ex2, F32) => floats!(|a| a.exp2()),
            (A::Lg2, F32) => floats!(|a| a.log2()),
            (A::Sin, F32) => floats!(|a| a.sin()),
            (A::Cos, F32) => floats!(|a| a.cos()),
            (A::Tanh, F32) => floats!(|a| a.tanh()),
            // In PTX the first operand gives the sign, the second the magnitude.
            (A::CopySign, F32) => floats!(|a, b| b.copysign(a)),
            (A::Add, F64) => reals!(|a, b| a + b),
            (A::Sub, F64) => reals!(|a, b| a - b),
            (A::Mul, F64) => reals!(|a, b| a * b),
            (A::Fma | A::Mad, F64) => reals!(|a, b, c| a.mul_add(b, c)),
            (A::Div, F64) => reals!(|a, b| a / b),
            (A::Min, F64) => reals!(|a, b| a.min(b)),
            (A::Max, F64) => reals!(|a, b| a.max(b)),
            (A::Neg, F64) => reals!(|a| -a),
            (A::Abs, F64) => reals!(|a| a.abs()),
            (A::Sqrt, F64) => reals!(|a| a.sqrt()),
            (A::Rcp, F64) => reals!(|a| 1.0 / a),
            (A::CopySign, F64) => reals!(|a, b| b.copysign(a)),
            (A::Add, U64 | S64) => doubles!(|a, b| a.wrapping_add(b)),
            (A::Sub, U64 | S64) => doubles!(|a, b| a.wrapping_sub(b)),
            (A::Mul, U64 | S64) => doubles!(|a, b| a.wrapping_mul(b)),
            (A::MulHi, U64) => doubles!(|a, b| ((a as u128 * b as u128) >> 64) as u64),
            (A::MulHi, S64) => doubles!(|a, b| ((a as i64 as i128 * b as i64 as i128) >> 64) as u64),
            (A::Mad, U64 | S64) => doubles!(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            (A::Div, U64) => doubles!(|a, b| a.checked_div(b).unwrap_or(u64::MAX)),
            (A::Rem, U64) => doubles!(|a, b| a.checked_rem(b).unwrap_or(a)),
            (A::Div, S64) => doubles!(|a, b| (a as i64).checked_div(b as i64).unwrap_or(-1) as u64),
            (A::Rem, S64) => doubles!(|a, b| (a as i64).checked_rem(b as i64).unwrap_or(0) as u64),
            (A::Min, U64) => doubles!(|a, b| a.min(b)),
            (A::Max, U64) => doubles!(|a, b| a.max(b)),
            (A::Min, S64) => doubles!(|a, b| (a as i64).min(b as i64) as u64),
            (A::Max, S64) => doubles!(|a, b| (a as i64).max(b as i64) as u64),
            (A::And, U64 | S64) => doubles!(|a, b| a & b),
            (A::Or, U64 | S64) => doubles!(|a, b| a | b),
            (A::Xor, U64 | S64) => doubles!(|a, b| a ^ b),
            (A::Not, U64 | S64) => doubles!(|a| !a),
            (A::Neg, U64 | S64) => doubles!(|a| a.wrapping_neg()),
            (A::Shl, U64 | S64) => doubles!(|a, b| a.checked_shl(b as u32).unwrap_or(0)),
            (A::Shr, U64) => doubles!(|a, b| a.checked_shr(b as u32).unwrap_or(0)),
            (A::Shr, S64) => doubles!(|a, b| ((a as i64) >> (b as u32).min(63)) as u64),
            (A::Popc, U64) => {
                let x = warp.double(args[0], self);
                warp.set_word(d, &x.map(|v| v.count_ones()), mask);
            }
            (A::Clz, U64) => {
                let x = warp.double(args[0], self);
                warp.set_word(d, &x.map(|v| v.leading_zeros()), mask);
            }
            (A::Brev, U64) => doubles!(|a| a.reverse_bits()),
            (A::MulWide, U32) => {
                let (x, y) = (warp.word(args[0], self), warp.word(args[1], self));
                warp.set_double(d, &std::array::from_fn(|i| x[i] as u64 * y[i] as u64), mask);
            }
            (A::MulWide, S32) => {
                let (x, y) = (warp.word(args[0], self), warp.word(args[1], self));
                warp.set_double(d, &std::array::from_fn(|i| (x[i] as i32 as i64 * y[i] as i32 as i64) as u64), mask);
            }
            (A::MulWide, U16) => words!(|a, b| (a & 0xffff) * (b & 0xffff)),
            (A::MulWide, S16) => words!(|a, b| (a as i16 as i32 * b as i16 as i32) as u32),
            (A::MadWide, U32 | S32) => {
                let (x, y, z) = (warp.word(args[0], self), warp.word(args[1], self), warp.double(args[2], self));
                let out = std::array::from_fn(|i| {
                    let product = if ty == U32 {
                        x[i] as u64 * y[i] as u64
                    } else {
                        (x[i] as i32 as i64 * y[i] as i32 as i64) as u64
                    };
                    product.wrapping_add(z[i])
                });
                warp.set_double(d, &out, mask);
            }
            (A::Add, U32 | S32) => words!(|a, b| a.wrapping_add(b)),
            (A::Sub, U32 | S32) => words!(|a, b| a.wrapping_sub(b)),
            (A::Mul, U32 | S32) => words!(|a, b| a.wrapping_mul(b)),
            (A::MulHi, U32) => words!(|a, b| ((a as u64 * b as u64) >> 32) as u32),
            (A::MulHi, S32) => words!(|a, b| ((a as i32 as i64 * b as i32 as i64) >> 32) as u32),
            (A::Mad, U32 | S32) => words!(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            (A::MadHi, U32) => words!(|a, b, c| (((a as u64 * b as u64) >> 32) as u32).wrapping_add(c)),
            (A::Div, U32) => words!(|a, b| a.checked_div(b).unwrap_or(u32::MAX)),
            (A::Rem, U32) => words!(|a, b| a.checked_rem(b).unwrap_or(a)),
            (A::Div, S32) => words!(|a, b| (a as i32).checked_div(b as i32).unwrap_or(-1) as u32),
            (A::Rem, S32) => words!(|a, b| (a as i32).checked_rem(b as i32).unwrap_or(0) as u32),
            (A::Min, U32) => words!(|a, b| a.min(b)),
            (A::Max, U32) => words!(|a, b| a.max(b)),
            (A::Min, S32) => words!(|a, b| (a as i32).min(b as i32) as u32),
            (A::Max, S32) => words!(|a, b| (a as i32).max(b as i32) as u32),
            (A::And, _) => words!(|a, b| a & b),
            (A::Or, _) => words!(|a, b| a | b),
            (A::Xor, _) => words!(|a, b| a ^ b),
            (A::Not, U16 | S16) => words!(|a| !a & 0xffff),
            (A::Not, _) => words!(|a| !a),
            (A::Cnot, _) => words!(|a| (a == 0) as u32),
            (A::Neg, U32 | S32) => words!(|a| a.wrapping_neg()),
            (A::Abs, S32) => words!(|a| (a as i32).wrapping_abs() as u32),
            (A::Shl, U32 | S32) => words!(|a, b| a.checked_shl(b).unwrap_or(0)),
            (A::Shr, U32) => words!(|a, b| a.checked_shr(b).unwrap_or(0)),
            (A::Shr, S32) => words!(|a, b| ((a as i32) >> b.min(31)) as u32),
            (A::Popc, _) => words!(|a| a.count_ones()),
            (A::Clz, _) => words!(|a| a.leading_zeros()),
            (A::Brev, _) => words!(|a| a.reverse_bits()),
            (A::Bfind, U32) => words!(|a| if a == 0 { u32::MAX } else { 31 - a.leading_zeros() }),
            (A::Bfe, U32) => words!(|a, b, c| {
                let n = c & 255;
                if n == 0 { 0 } else { a.checked_shr(b & 255).unwrap_or(0) & (u64::MAX >> (64 - n.min(32))) as u32 }
            }),
            (A::Bfe, S32) => words!(|a, b, c| {
                let n = (c & 255).min(32);
                if n == 0 { 0 } else { (((a as i32 as i64) >> (b & 255).min(31)) << (64 - n) >> (64 - n)) as u32 }
            }),
            (A::Bfi, U32) => {
                let (x, y, p, n) = (
                    warp.word(args[0], self),
                    warp.word(args[1], self),
                    warp.word(args[2], self),
                    warp.word(args[3], self),
                );
                let out = std::array::from_fn(|i| {
                    let keep = ((1u64 << n[i].min(32)) - 1) << (p[i] & 255).min(63);
                    (y[i] as u64 & !keep | (x[i] as u64) << (p[i] & 255).min(63) & keep) as u32
                });
                warp.set_word(d, &out, mask);
            }
            (A::Prmt, _) => words!(|a, b, c| {
                let bytes = a as u64 | (b as u64) << 32;
                (0..4).fold(0u32, |out, i| {
                    let pick = c >> (4 * i) & 15;
                    let byte = (bytes >> (8 * (pick & 7))) as u8;
                    let byte = if pick & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
                    out | (byte as u32) << (8 * i)
                })
            }),
            (A::ShfL, _) => words!(|a, b, c| (((b as u64) << 32 | a as u64) << (c & 31) >> 32) as u32),
            (A::ShfR, _) => words!(|a, b, c| (((b as u64) << 32 | a as u64) >> (c & 31)) as u32),
            (A::ShfLClamp, _) => words!(|a, b, c| (((b as u128) << 32 | a as u128) << c.min(32) >> 32) as u32),
            (A::ShfRClamp, _) => words!(|a, b, c| (((b as u64) << 32 | a as u64) >> c.min(32)) as u32),
            (A::Lop3, _) => words!(|a, b, c| (0..8).fold(0u32, |out, i| {
                if immediate >> i & 1 == 0 {
                    return out;
                }
                let pick = |bit: u32, v: u32| if i >> bit & 1 == 1 { v } else { !v };
                out | pick(2, a) & pick(1, b) & pick(0, c)
            })),
            (A::MulHi, U16) => words!(|a, b| ((a & 0xffff) * (b & 0xffff)) >> 16),
            (A::MulHi, S16) => words!(|a, b| ((a as i16 as i32 * b as i16 as i32) >> 16) as u32 & 0xffff),
            (A::MadWide, U16) => words!(|a, b, c| ((a & 0xffff) * (b & 0xffff)).wrapping_add(c)),
            (A::MadWide, S16) => words!(|a, b, c| ((a as i16 as i32 * b as i16 as i32) as u32).wrapping_add(c)),
            (A::Abs, S16) => words!(|a| (a as i16).wrapping_abs() as u16 as u32),
            (A::Abs, S64) => doubles!(|a| (a as i64).wrapping_abs() as u64),
            (A::Div, S16) => words!(|a, b| (a as i16).checked_div(b as i16).unwrap_or(-1) as u16 as u32),
            (A::Rem, S16) => words!(|a, b| (a as i16).checked_rem(b as i16).unwrap_or(0) as u16 as u32),
            (A::Max, S16) => words!(|a, b| (a as i16).max(b as i16) as u16 as u32),
            (A::Add, U16 | S16) => words!(|a, b| a.wrapping_add(b) & 0xffff),
            (A::Sub, U16 | S16) => words!(|a, b| a.wrapping_sub(b) & 0xffff),
            (A::Mul, U16 | S16) => words!(|a, b| a.wrapping_mul(b) & 0xffff),
            (A::Mad, U16 | S16) => words!(|a, b, c| a.wrapping_mul(b).wrapping_add(c) & 0xffff),
            (A::Shl, U16 | S16) => words!(|a, b| if b > 15 { 0 } else { a << b & 0xffff }),
            (A::Shr, U16) => words!(|a, b| (a & 0xffff).checked_shr(b).unwrap_or(0)),
            (A::Shr, S16) => words!(|a, b| ((a as i16) >> b.min(15)) as u16 as u32),
            (A::Div, U16) => words!(|a, b| (a & 0xffff).checked_div(b & 0xffff).unwrap_or(0xffff)),
            (A::Rem, U16) => words!(|a, b| (a & 0xffff).checked_rem(b & 0xffff).unwrap_or(a)),
            (A::Min, U16) => words!(|a, b| (a & 0xffff).min(b & 0xffff)),
            (A::Max, U16) => words!(|a, b| (a & 0xffff).max(b & 0xffff)),
            (A::Neg, U16 | S16) => words!(|a| a.wrapping_neg() & 0xffff),
            (A::Min, S16) => words!(|a, b| (a as i16).min(b as i16) as u16 as u32),
            _ => return Err(format!("{f:?} of {ty:?} is not known")),
        }
        Ok(())
    }
}
