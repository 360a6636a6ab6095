//! Which numbers are finite, by their bits: compilers for GPUs may take it that no number is infinite
//! or none at all, and functions such as `exp` may give a finite number for one that is none.

use cubecl::prelude::*;

/// Whether a number is one, and not infinite.
#[cube]
pub fn is_finite(x: f32) -> bool {
    (u32::reinterpret(x) & 0x7f80_0000) != 0x7f80_0000
}

/// Whether something is no number, or infinity; minus infinity is as small as a number can be.
#[cube]
pub fn is_beyond_numbers(x: f32) -> bool {
    !is_finite(x) && u32::reinterpret(x) != 0xff80_0000
}
