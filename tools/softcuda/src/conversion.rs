//! `cvt`: conversion between number types, and directed rounding.

use crate::{
    number::*,
    ptx::{Round, Ty},
};

pub fn converted(to: Ty, from: Ty, round: Round, saturate: bool, bits: u64) -> u64 {
    use Ty::*;
    let float = match from {
        F32 | Tf32 => Some(f32::from_bits(bits as u32) as f64),
        F64 => Some(f64::from_bits(bits)),
        F16 => Some(from_f16(bits as u16) as f64),
        BF16 => Some(from_bf16(bits as u16) as f64),
        _ => None,
    };
    let Some(v) = float else {
        let whole: i128 = match from {
            U8 => bits as u8 as i128,
            S8 => bits as i8 as i128,
            U16 => bits as u16 as i128,
            S16 => bits as i16 as i128,
            U32 => bits as u32 as i128,
            S32 => bits as i32 as i128,
            S64 => bits as i64 as i128,
            _ => bits as i128,
        };
        return match to {
            F32 => (whole as f32).to_bits() as u64,
            F64 => (whole as f64).to_bits(),
            F16 => to_f16(to_odd(odd_f64(whole))) as u64,
            BF16 => to_bf16(to_odd(odd_f64(whole))) as u64,
            U8 => whole as u8 as u64,
            S8 => whole as i8 as i64 as u64,
            U16 => whole as u16 as u64,
            S16 => whole as i16 as i64 as u64,
            U32 => whole as u32 as u64,
            S32 => whole as i32 as i64 as u64,
            _ => whole as u64,
        };
    };
    match to {
        F32 | F64 | F16 | BF16 | Tf32 => {
            let same = to == from;
            let v = if same && round != Round::None { rounded(v, round) } else { v };
            let v = if saturate { v.clamp(0.0, 1.0) } else { v };
            match to {
                F32 => directed(v, if same { Round::None } else { round }).to_bits() as u64,
                F64 => v.to_bits(),
                F16 => to_f16(to_odd(v)) as u64,
                BF16 => to_bf16(to_odd(v)) as u64,
                _ => to_tf32(to_odd(v)).to_bits() as u64,
            }
        }
        _ => {
            // Out-of-range values saturate, as on the hardware.
            let v = rounded(v, round);
            match to {
                U8 => v as u8 as u64,
                S8 => v as i8 as i64 as u64,
                U16 => v as u16 as u64,
                S16 => v as i16 as i64 as u64,
                U32 => v as u32 as u64,
                S32 => v as i32 as u32 as u64,
                S64 => v as i64 as u64,
                _ => v as u64,
            }
        }
    }
}

/// A number of up to 64 bits, rounded to odd.
fn odd_f64(whole: i128) -> f64 {
    let near = whole as f64;
    odd_beside(near, (whole - near as i128) as f64)
}

fn rounded(v: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => v.round_ties_even(),
        Round::Zero => v.trunc(),
        Round::Down => v.floor(),
        Round::Up => v.ceil(),
        _ => v,
    }
}

/// The float32 next to `exact` in the direction of `round`.
pub fn directed(exact: f64, round: Round) -> f32 {
    let near = exact as f32;
    let wrong = match round {
        Round::Down => near as f64 > exact,
        Round::Up => (near as f64) < exact,
        Round::Zero => (near as f64).abs() > exact.abs(),
        _ => false,
    };
    match (wrong, round) {
        (false, _) => near,
        (_, Round::Down) => near.next_down(),
        (_, Round::Up) => near.next_up(),
        _ => f32::from_bits(near.to_bits() - 1),
    }
}
