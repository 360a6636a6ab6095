//! `setp`: compares two operands; the result has one bit per lane.

use crate::{
    block::Block,
    lanes::LANES,
    number::*,
    ptx::{Compare, Src, Ty},
    warp::Warp,
};

pub fn compared(warp: &Warp, block: &Block, compare: Compare, ty: Ty, a: Src, b: Src) -> u32 {
    use Compare::*;
    fn ordered<T: PartialOrd>(c: Compare, a: T, b: T) -> bool {
        let unordered = a.partial_cmp(&b).is_none();
        match c {
            Eq => a == b,
            Ne => !unordered && a != b,
            Lt => a < b,
            Le => a <= b,
            Gt => a > b,
            Ge => a >= b,
            Equ => unordered || a == b,
            Neu => unordered || a != b,
            Ltu => unordered || a < b,
            Leu => unordered || a <= b,
            Gtu => unordered || a > b,
            Geu => unordered || a >= b,
            Num => !unordered,
            Nan => unordered,
        }
    }
    let mut bits = 0;
    macro_rules! each {
        ($get:ident, $map:expr) => {{
            let (x, y) = (warp.$get(a, block), warp.$get(b, block));
            for i in 0..LANES {
                bits |= (ordered(compare, $map(x[i]), $map(y[i])) as u32) << i;
            }
        }};
    }
    match ty {
        Ty::U64 => each!(double, |v: u64| v),
        Ty::S64 => each!(double, |v: u64| v as i64),
        Ty::F64 => each!(double, f64::from_bits),
        Ty::F32 => each!(word, f32::from_bits),
        Ty::S32 => each!(word, |v: u32| v as i32),
        Ty::U16 => each!(word, |v: u32| v as u16),
        Ty::S16 => each!(word, |v: u32| v as i16),
        Ty::F16 => each!(word, |v: u32| from_f16(v as u16)),
        Ty::BF16 => each!(word, |v: u32| from_bf16(v as u16)),
        _ => each!(word, |v: u32| v),
    }
    bits
}
